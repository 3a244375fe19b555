// A button that copies each block, and on the first page a search in all pages.
addEventListener('DOMContentLoaded', () => {
  for (const block of document.querySelectorAll('pre')) {
    const button = document.createElement('button');
    button.textContent = 'copy';
    button.onclick = async () => {
      try {
        await navigator.clipboard.writeText(block.innerText);
        button.textContent = 'copied';
      } catch {  // a browser that gives pages of files no clipboard
        getSelection().selectAllChildren(block);
      }
    };
    const frame = document.createElement('div');
    frame.className = 'block';
    block.replaceWith(frame);
    frame.append(block, button);
  }
  const box = document.querySelector('input[type=search]');
  if (!box) return;
  const sections = JSON.parse(document.getElementById('sections').textContent);
  box.oninput = () => {
    const words = box.value.toLowerCase().split(/\s+/).filter(Boolean);
    const found = words.length ? sections.filter(([, , text]) => words.every(word => text.includes(word))) : [];
    const list = document.getElementById('found');
    list.replaceChildren(...found.slice(0, 20).map(([link, title]) => {
      const item = document.createElement('li');
      item.append(Object.assign(document.createElement('a'), {href: link, textContent: title}));
      return item;
    }));
    if (words.length && !found.length) list.append('nothing found');
  };
});
