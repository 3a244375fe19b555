"""A lesson's page: what it says is compared with what the program prints and draws, and Markdown becomes HTML."""
import html
import json
import os
import pathlib
import re
import shutil
import subprocess
import tempfile

# Threads that wait do not spin: on a machine that is busy, programs of small loops are many times as fast so.
QUIET_THREADS = {"OMP_WAIT_POLICY": "passive", **os.environ}
HERE = pathlib.Path(__file__).resolve().parent
LONGEST_PROGRAM = 150  # lines
MOST_GAPS = 5
NUMBER = re.compile(r"\d+(?:\.\d+)?(?:[eE][+-]?\d+)?")


class Lesson:
    def __init__(self, folder):
        self.folder = folder
        self.number = folder.name[:2].lstrip("0")  # m1 is a milestone
        self.name = folder.name[3:]

    def text(self, file="README.md"):
        return (self.folder / file).read_text(encoding="utf-8")

    @property
    def title(self):
        return self.text().splitlines()[0].lstrip("# ")

    def gaps(self):
        """The numbers of its gaps: those that its tests name."""
        return sorted({int(gap) for gap in re.findall(r'TEST_CASE\("gap (\d+):', self.text("test.cpp"))})

    def target(self, kind=""):
        return f"lesson_{self.folder.name[:2]}" + (f"_{kind}" if kind else "")


def all_lessons(root=HERE):
    """In the order of the course: the milestones m1, m2 and m3 come after the lessons 4, 7 and 10."""
    order = {"m1": "04m", "m2": "07m", "m3": "10m"}
    folders = [folder for folder in root.glob("[0-9m][0-9]_*") if folder.is_dir()]
    return [Lesson(folder) for folder in sorted(folders, key=lambda folder: order.get(folder.name[:2], folder.name))]


def run_program(program, pictures):
    """What the lesson's program prints, as lines; its pictures go into a folder."""
    result = subprocess.run([program, pictures], capture_output=True, text=True, encoding="utf-8", timeout=300,
                            env=QUIET_THREADS)
    if result.returncode != 0:
        raise RuntimeError(f"{program.name} ended with exit code {result.returncode}\n{result.stdout}{result.stderr}")
    return [line.rstrip() for line in result.stdout.splitlines()]


def masked(line):
    """A line with measured numbers says the same on another machine when only numbers, blanks and bars differ."""
    if "measured" not in line:
        return line
    return re.sub(r"\s+", " ", re.sub("[#█▏▎▍▌▋▊▉]+", "|", NUMBER.sub("0", line))).strip()


def fences(text):
    """(language, first line, lines) of each fenced block; the first line of the file is 0."""
    blocks, start, info = [], None, ""
    lines = text.splitlines()
    for i, line in enumerate(lines):
        if line.startswith("```"):
            if start is None:
                start, info = i + 1, line[3:].strip()
            else:
                blocks.append((info, start, lines[start:i]))
                start = None
    return blocks


def place_of(block, output):
    """Where in the output the lines of a block stand, measured numbers aside; None if nowhere."""
    wanted = [masked(line.rstrip()) for line in block]
    have = [masked(line) for line in output]
    for i in range(len(have) - len(wanted) + 1):
        if have[i:i + len(wanted)] == wanted:
            return i
    return None


def nearest_line(block, output):
    """For a message: the first line of the block that the program does not print."""
    have = {masked(line) for line in output}
    return next((line for line in block if masked(line.rstrip()) not in have), block[0] if block else "")


def numbers_of(text):
    """Numbers that must come from the program: with decimals, or of three digits and more."""
    text = re.sub(r"(?<=\d)[,\u202f](?=\d{3})", "", text)
    return {n for n in re.findall(r"(?<![\w.])\d+(?:\.\d+)?(?:e[+-]?\d+)?", text) if "." in n or len(n) >= 3}


def place_of_code(lesson, info, block, root):
    """(file, line) where the code of a block stands, blank lines and indentation aside; None if nowhere."""
    named = info.split(" ")[1:]
    files = [root / named[0]] if named else [file for file in lesson.folder.iterdir() if file.suffix in (".cpp", ".h")]
    wanted = [line.strip() for line in block if line.strip()]
    for file in sorted(files, key=lambda file: (file.name != "lesson.cpp", file.name == "solution.cpp", file.name)):
        have = [(number, line.strip()) for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1)
                if line.strip()]
        for i in range(len(have) - len(wanted) + 1):
            if [line for _, line in have[i:i + len(wanted)]] == wanted:
                return file, have[i][0]
    return None


def check_text(lesson, output, root):
    text, faults = lesson.text(), []
    sources = {file.name: file.read_text(encoding="utf-8") for file in lesson.folder.iterdir()
               if file.suffix in (".cpp", ".h")}
    blocks = fences(text)
    if not any(info == "text" for info, _, _ in blocks):
        faults.append("has no ```text block: a page shows what its program prints")
    for info, start, lines in blocks:
        if info == "text" and place_of(lines, output) is None:
            faults.append(f"line {start + 1}: the program does not print this; first: {nearest_line(lines, output)!r}")
        if info.split(" ")[0] == "cpp":
            named = info.split(" ")[1:]
            if named and not (root / named[0]).exists():
                faults.append(f"line {start}: there is no file {named[0]}")
            elif place_of_code(lesson, info, lines, root) is None:
                faults.append(f"line {start + 1}: this code stands in no file of {(named or [lesson.folder.name])[0]}")
    prose = text.splitlines()
    for _, start, lines in blocks:
        prose[start - 1:start + len(lines) + 1] = [""] * (len(lines) + 2)
    printed = "\n".join(line for line in output if "measured" not in line)
    known = numbers_of(printed) | {n for source in sources.values() for n in numbers_of(source)}
    for i, line in enumerate(prose):
        for number in sorted(numbers_of(re.sub(r"\]\([^)]*\)", "]", line)) - known):
            faults.append(f"line {i + 1}: the program does not print the number {number}")
    return faults


def check_pictures(lesson, drawn):
    faults = []
    shown = set(re.findall(r"!\[[^\]]+\]\(([^)/]+\.svg)\)", lesson.text()))
    new = {file.name: file.read_text(encoding="utf-8") for file in pathlib.Path(drawn).glob("*.svg")}
    kept = {file.name: file.read_text(encoding="utf-8") for file in lesson.folder.glob("*.svg")}
    for name in sorted(shown | set(new) | set(kept)):
        if name not in new:
            faults.append(f"the program does not draw {name}")
        elif name not in shown:
            faults.append(f"the page does not show {name}, or without a text in its brackets")
        elif name not in kept:
            faults.append(f"{name} is not kept beside the page: ./run lesson {lesson.number} --accept")
        elif "measured" in new[name]:
            if NUMBER.sub("0", new[name]) != NUMBER.sub("0", kept[name]):
                faults.append(f"{name} differs by more than numbers: ./run lesson {lesson.number} --accept")
        elif new[name] != kept[name]:
            faults.append(f"{name} is not what the program draws: ./run lesson {lesson.number} --accept")
    return faults


def check_files(lesson):
    faults = []
    for file in ("README.md", "lesson.cpp", "exercise.h", "exercise.cpp", "solution.cpp", "test.cpp"):
        if not (lesson.folder / file).exists():
            return [f"{file} is missing"]
    if (count := len(lesson.text("lesson.cpp").splitlines())) > LONGEST_PROGRAM:
        faults.append(f"lesson.cpp has {count} lines: expected at most {LONGEST_PROGRAM}")
    gaps = lesson.gaps()
    if gaps != list(range(1, len(gaps) + 1)) or not 1 <= len(gaps) <= MOST_GAPS:
        faults.append(f"test.cpp: expected cases of gaps 1, 2, … (at most {MOST_GAPS}), got {gaps}")
    for file in ("exercise.cpp", "solution.cpp"):
        if (found := [int(gap) for gap in re.findall(r"// GAP (\d+)", lesson.text(file))]) != gaps:
            faults.append(f"{file}: expected the comments // GAP {', '.join(map(str, gaps))}, got {found}")
    faults += [f'test.cpp: expected a name like "gap 1: …", got "{test}"'
               for test in re.findall(r'TEST_CASE\("([^"]*)"', lesson.text("test.cpp"))
               if not re.match(r"gap \d+: [^,*]*$", test)]
    return faults


def check(lesson, program, root=HERE.parent):
    """The faults of a lesson's page, each as a line."""
    faults = check_files(lesson)
    if faults:
        return faults
    with tempfile.TemporaryDirectory() as drawn:
        output = run_program(program, drawn)
        faults += check_text(lesson, output, root)
        faults += check_pictures(lesson, drawn)
    return faults


def accept(lesson, program):
    """Keeps the pictures beside the page, and in the page the numbers that this machine measured."""
    with tempfile.TemporaryDirectory() as drawn:
        output = run_program(program, drawn)
        (lesson.folder / "README.md").write_text(with_output(lesson.text(), output), encoding="utf-8")
        for file in lesson.folder.glob("*.svg"):
            file.unlink()
        for file in sorted(pathlib.Path(drawn).glob("*.svg")):
            shutil.copy(file, lesson.folder)
            print(f"{lesson.folder.name}/{file.name}")


# HTML. The pages of a site lie in one folder: index.html, NN_name.html, and source/ with the files that pages name.

def with_output(text, output):
    """The page with this run's lines in its blocks: measured numbers are those of this machine."""
    lines = text.splitlines()
    for info, start, block in fences(text):
        if info == "text" and (place := place_of(block, output)) is not None:
            lines[start:start + len(block)] = output[place:place + len(block)]
    return "\n".join(lines) + "\n"


def with_sources(lesson, root):
    """The page with a link after each block of code: to the line where it stands."""
    lines = lesson.text().splitlines()
    for info, start, block in reversed(fences(lesson.text())):
        if info.split(" ")[0] == "cpp" and (place := place_of_code(lesson, info, block, root)):
            file = os.path.relpath(place[0], lesson.folder)
            lines.insert(start + len(block) + 1, f"\n[{place[0].name}, line {place[1]}]({file}#L{place[1]})")
    return "\n".join(lines) + "\n"


def write_source(file, copy):
    """A page with numbered lines, to which links may lead: #L12."""
    copy.parent.mkdir(parents=True, exist_ok=True)
    lines = enumerate(html.escape(file.read_text(encoding="utf-8", errors="replace")).splitlines(), 1)
    copy.write_text('<!DOCTYPE html><meta charset="utf-8"><meta name="color-scheme" content="light dark">'
                    f'<title>{file.name}</title><style>:target{{background:#8884}}</style><pre>\n'
                    + "".join(f'<span id="L{number}">{number:4}  {line}</span>\n' for number, line in lines)
                    + "</pre>\n", encoding="utf-8")


def linked(text, folder, site, root, pages):
    """Links to pages of the site lead to them, links to other files of the tree to a copy in the site."""
    def target(match):
        label, link = match.groups()
        path, _, anchor = link.partition("#")
        if re.match(r"[a-z]+:", link) or not path or path.endswith(".svg"):
            return match.group(0)
        file = (folder / path).resolve()
        if file.is_dir() and (file / "README.md").exists():
            file = file / "README.md"
        if file in pages:
            return f"[{label}]({pages[file]}{'#' + anchor if anchor else ''})"
        if not file.exists() or not file.is_relative_to(root):
            raise RuntimeError(f"{folder.name}: the page links to {path}, which is not there")
        if file.is_dir():
            return label
        copy = site / "source" / (str(file.relative_to(root)) + ".html")
        write_source(file, copy)
        return f"[{label}]({copy.relative_to(site).as_posix()}{'#' + anchor if anchor else ''})"
    return re.sub(r"(?<!!)\[((?:[^\[\]]|\[[^\]]*\])+)\]\(([^)\s]+)\)", target, text)  # E[x] in a label, too


def to_html(text, file, title, pictures, before, after):
    """One self-contained file: pictures, style and formulas are inside."""
    command = ["pandoc", "--from=gfm+tex_math_dollars", "--to=html5", "--mathml", "--standalone", "--self-contained",
               "--no-highlight", f"--template={HERE / 'site' / 'page.html'}", f"--css={HERE / 'site' / 'style.css'}",
               f"--variable=script={HERE / 'site' / 'page.js'}", f"--resource-path={pictures}",
               f"--metadata=pagetitle={title}", f"--output={file}"]
    for key, page in (("before", before), ("after", after)):
        if page is not None:
            command += [f"--variable={key}-link={page[0]}", f"--variable={key}-title={page[1]}"]
    result = subprocess.run(command, input=text, capture_output=True, text=True, encoding="utf-8")
    if result.returncode != 0 or "[WARNING]" in result.stderr:
        raise RuntimeError(f"pandoc: {title}: {result.stderr.strip()}")
    page = file.read_text(encoding="utf-8")
    # Brackets around one line are of its height: without a font for formulas, browsers make them taller.
    def keep_low(match):
        tall = re.search(r"<m(frac|under|over|sqrt|table)", match.group(0))
        return match.group(0) if tall else match.group(0).replace('stretchy="true"', 'stretchy="false"')
    page = re.sub(r"<math\b.*?</math>", keep_low, page, flags=re.S)
    # What is wider than a phone moves inside its frame, also by the keyboard.
    page = re.sub(r"<pre(?: class=\"[a-z]+\")?>", r'<pre tabindex="0">', page)
    page = re.sub(r'(<table>.*?</table>)', r'<div class="wide" tabindex="0">\1</div>', page, flags=re.S)
    page = re.sub(r'(<math display="block".*?</math>)', r'<span class="wide" tabindex="0">\1</span>', page, flags=re.S)
    page = re.sub(r'<p><a\s+href="(source/[^"]*#L\d+)">', r'<p class="from"><a href="\1">', page)
    file.write_text(page, encoding="utf-8")


def add_search(index, every):
    """Gives the first page the text of each section of all pages, and a field to search it."""
    sections = []
    for lesson in every:
        file = f"{lesson.folder.name}.html"
        page = (index.parent / file).read_text(encoding="utf-8").partition("<main>")[2].partition("</main>")[0]
        parts = [html.unescape(re.sub(r"<annotation.*?</annotation>|<[^>]*>", " ", part, flags=re.S)) for part in
                 re.split(r'<h[12]\b[^>]*\bid="([^"]+)"[^>]*>(.*?)</h[12]>', page, flags=re.S)[1:]]
        for anchor, title, text in zip(parts[::3], parts[1::3], parts[2::3]):
            title = " ".join(title.split())
            where = title if title == lesson.title else f"{lesson.title}: {title}"
            sections.append([f"{file}#{anchor}", where, " ".join(f"{title} {text}".lower().split())])
    data = json.dumps(sections, ensure_ascii=False).replace("<", "\\u003c")
    page = index.read_text(encoding="utf-8")
    page = page.replace("</head>", f'<script type="application/json" id="sections">{data}</script>\n</head>', 1)
    page = page.replace("</h1>", '</h1>\n<input type="search" placeholder="search all lessons" '
                        'aria-label="search all lessons"><ul id="found"></ul>', 1)
    index.write_text(page, encoding="utf-8")


def changed(lesson):
    """When what a page is made of was last changed."""
    return max(file.stat().st_mtime for folder in (lesson.folder, HERE / "site") for file in folder.iterdir())


def make_pages(lessons, program_of, site, root=HERE.parent):
    """Writes the pages of some lessons into the folder `site`, and those of the others as they are kept, if they are
    newer. Returns what the programs print, by number."""
    outputs = {}
    site.mkdir(parents=True, exist_ok=True)
    every = all_lessons()
    pages = {lesson.folder / "README.md": f"{lesson.folder.name}.html" for lesson in every}
    pages[HERE / "README.md"] = "index.html"
    chosen = {lesson.number for lesson in lessons}
    for lesson in every:
        page = site / f"{lesson.folder.name}.html"
        made = page.stat().st_mtime if page.exists() else 0
        if lesson.number not in chosen and made > changed(lesson):
            continue
        at = [other.number for other in every].index(lesson.number)
        neighbours = [(f"{every[i].folder.name}.html", every[i].title) if 0 <= i < len(every) else None
                      for i in (at - 1, at + 1)]
        with tempfile.TemporaryDirectory() as drawn:
            text = with_sources(lesson, root)
            if lesson.number in chosen:
                outputs[lesson.number] = run_program(program_of(lesson), drawn)
                text = with_output(text, outputs[lesson.number])
            pictures = drawn if lesson.number in chosen else lesson.folder
            to_html(linked(text, lesson.folder, site, root, pages), page, lesson.title, pictures, *neighbours)
    text = linked((HERE / "README.md").read_text(encoding="utf-8"), HERE, site, root, pages)
    first = (f"{every[0].folder.name}.html", every[0].title)
    to_html(text, site / "index.html", "Norma: the lessons", HERE, None, first)
    add_search(site / "index.html", every)
    return outputs


def ids_of(file):
    return set(re.findall(r'\bid="([^"]+)"', file.read_text(encoding="utf-8")))


def check_site(site):
    """The faults of a site: links that lead nowhere, and anything that a page would fetch."""
    faults = []
    for file in sorted(site.glob("*.html")):
        page = file.read_text(encoding="utf-8")
        ids = ids_of(file)
        for link in re.findall(r'<a\b[^>]*\bhref="([^"]*)"', page):
            path, _, anchor = link.partition("#")
            if re.match(r"https?:", link):
                continue
            if path and not (site / path).exists():
                faults.append(f"{file.name}: a link leads nowhere: {link}")
            elif anchor and anchor not in (ids_of(site / path) if path else ids):
                faults.append(f"{file.name}: a link leads nowhere: {link}")
        from_elsewhere = r'\b(?:src|srcset|data|action)="((?!data:)[^"]*)"|<link\b[^>]*href="((?!data:)[^"]*)"'
        faults += [f"{file.name}: fetches {''.join(fetched)}" for fetched in re.findall(from_elsewhere, page)]
    return faults
