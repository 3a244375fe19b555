"""Files of figures: each record of a list is one line, so that a new measurement is a short difference."""
import json


def text(value, indent=""):
    if not isinstance(value, (dict, list)) or not value:
        return json.dumps(value)
    more = indent + " "
    if isinstance(value, list):
        return "[\n" + ",\n".join(more + json.dumps(record) for record in value) + f"\n{indent}]"
    return "{\n" + ",\n".join(f"{more}{json.dumps(key)}: {text(member, more)}" for key, member in value.items()) + f"\n{indent}}}"


def write(path, value):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text(value) + "\n")
