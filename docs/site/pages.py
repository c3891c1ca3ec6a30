"""Makes the pages of the site, for scripts/site: the tree's documents, at the paths that they have there, and what is made
of headers, of Python's docstrings, of JavaScript's types, and of examples and what they print."""
import ast
import collections
import os
import pathlib
import re
import subprocess
import textwrap

from headers import ROOT, Headers, fenced, plain
from mkdocs.structure.files import File

TYPES = "web/client/session.d.ts"
PYTHON = {"tensafe": "__init__ adapter model errors", "tensafe.torch": "torch", "tensafe.dora": "dora",
          "tensafe.link": "link", "tensafe.trace": "trace"}
LINK = re.compile(r"\]\(([^)#:\s]+)(#[^)\s]*)?\)")


def docstring(node):
    """A docstring, its lines `name: text` as a list: to an item belong lines that are indented, or end its sentence."""
    out = ""
    for paragraph in re.split(r"\n\s*\n", ast.get_docstring(node)):
        if paragraph.startswith(">>>"):
            out += fenced(paragraph, "pycon")
            continue
        listed, before = False, ""
        for line in paragraph.split("\n"):
            item = re.match(r"(\w+(?:, \w+)*): (.*)", line)
            goes_on = listed and not item and (line.startswith("    ") or before[-1:] != ".")
            out += "\n" if listed != bool(item or goes_on) else ""
            out += f"- `{item[1]}`: {item[2]}\n" if item else "    " * goes_on + line.strip() + "\n"
            listed, before = bool(item or goes_on), line
        out += "\n"
    return out


def python_head(node, lines):
    """The lines of a class or function, from its first decorator to its docstring or body."""
    begin = min([node.lineno, *(each.lineno for each in node.decorator_list)])
    return textwrap.dedent("\n".join(lines[begin - 1:node.body[0].lineno - 1])).strip()


def is_public(node):
    return isinstance(node, (ast.ClassDef, ast.FunctionDef)) and node.name[0] != "_" and ast.get_docstring(node)


def python_entry(node, lines, level, of):
    head, members = python_head(node, lines), node.body if isinstance(node, ast.ClassDef) else []
    for each in members:
        if isinstance(each, ast.AnnAssign) and each.target.id[0] != "_":
            head += f"\n    {ast.unparse(each)}"
        if getattr(each, "name", "") == "__init__":
            head += "\n" + textwrap.indent(python_head(each, lines), "    ")
    return (f"{'#' * level} {plain(of + node.name)}\n\n" + fenced(head, "python") + docstring(node) +
            "".join(python_entry(each, lines, level + 1, f"{node.name}.") for each in members if is_public(each)))


def python_page(name):
    """What the modules define under the names of the first one's `__all__`, else all that is public."""
    out, exported = f"# {name}\n\n", None
    for module in PYTHON[name].split():
        lines = (ROOT / f"python/tensafe/{module}.py").read_text().split("\n")
        tree = ast.parse("\n".join(lines))
        out += docstring(tree) if out.count("\n") == 2 else ""
        for node in tree.body:
            if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "__all__":
                exported = ast.literal_eval(node.value)
            if is_public(node) and (exported is None or node.name in exported):
                out += python_entry(node, lines, 2, "")
    return out


def types_page():
    """What the types of the JavaScript client export, each under its name."""
    out = "# @tensafe/client\n\n"
    for text, code in re.findall(r"(?ms)^(?:/\*\*((?:(?!\*/).)*)\*/\n)?^(export .*?\n)(?=\n|\Z)", (ROOT / TYPES).read_text()):
        name = re.match(r"export (?:class|interface|function) (\w+)", code)[1]
        out += f"## {name}\n\n{re.sub(r'(?m)^ *[*]? ?', '', text).strip()}\n\n" + fenced(code, "typescript")
    return out


def example_page(source, arguments):
    """The example, after what it prints if it was built: with these arguments, or none where that says how to use it."""
    name = re.sub(r"^\d+_", "", source.stem)
    built = ROOT / f"build/release/examples/{name}"
    out = f"# {source.name}\n\n"
    if built.exists():
        run = subprocess.run([built, *arguments], cwd=ROOT, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=300)
        command = " ".join([f"$ build/release/examples/{name}", *arguments])
        # What needs options says so.
        if run.returncode and "required" not in run.stderr:
            raise RuntimeError(f"{command}: got the status {run.returncode}, expected 0: {run.stderr[-500:]}")
    if built.exists() and run.returncode == 0:
        out += "It prints:\n\n" + fenced(f"{command}\n{run.stdout}", "console")
    else:
        out += "These pages were made without a run of it.\n\n"
    return out + fenced(source.read_text(), "cpp")


def file_page(path):
    """The text of a file, or of each file of a folder."""
    files = sorted(each for each in path.rglob("*") if each.is_file()) if path.is_dir() else [path]
    shown = (f"## {each.relative_to(ROOT)}\n\n" * path.is_dir() + fenced(each.read_text(), each.suffix[1:]) for each in files)
    return f"# {path.relative_to(ROOT)}\n\n" + "".join(shown)


def linked(page, made):
    """The text of a page. A link to another file of the tree leads to a page of it: no code host has an address for them."""
    def target(link):
        path = (page.parent / link[1]).resolve()
        if not path.exists() or path.suffix == ".md":
            return link[0]
        name = os.path.relpath(path, ROOT)
        if path.suffix == ".svg":
            made[name] = path
            return link[0]
        if f"{name}.md" not in made:
            made[f"{name}.md"] = file_page(path)
        return f"]({link[1]}.md{link[2] or ''})"
    return LINK.sub(target, page.read_text())


def pages():
    """Returns what stands at each path, a text or a file to copy, and the made parts of the navigation."""
    made = {f"python/{name}.md": python_page(name) for name in PYTHON}
    made[f"{TYPES}.md"] = types_page()

    headers, rooms, cpp = Headers(ROOT / "build/doxygen/xml"), collections.defaultdict(list), []
    for file in sorted((ROOT / "include").rglob("*.[hc][pu][ph]")):
        header = str(file.relative_to(ROOT / "include"))
        room = header.split("/")[1] if header.count("/") > 1 else "umbrellas"
        if header in headers.entries or room == "umbrellas":
            rooms[room].append(header)
            made[f"include/{header}.md"] = headers.page(header)
    for room, names in rooms.items():
        listed = [{name.split("/", 2)[-1]: f"include/{name}.md"} for name in names]
        if room != "umbrellas":
            listed.insert(0, {"Overview": f"include/tensafe/{room}/index.md"})
            made[f"include/tensafe/{room}/index.md"] = headers.overview(room, names)
        cpp.append({room: listed})

    examples = [*sorted((ROOT / "examples").glob("*.cpp")), *sorted((ROOT / "examples/device").glob("*.cu"))]
    commands = re.findall(r"\$ build/release/examples/(\w+)(.*)", (ROOT / "examples/README.md").read_text())
    arguments = {name: rest.split() for name, rest in commands}
    for source in examples:
        made[f"{source.relative_to(ROOT)}.md"] = example_page(source, arguments.get(re.sub(r"^\d+_", "", source.stem), []))

    for page in [*ROOT.glob("*.md"), *(each for folder in ("docs", "examples", "studies", "tests/data")
                                       for each in (ROOT / folder).rglob("*.md"))]:
        made[str(page.relative_to(ROOT))] = linked(page, made)
    return made, {
        "Examples": ["examples/README.md", *({each.name: f"{each.relative_to(ROOT)}.md"} for each in examples)],
        "Reference": [{"C++": cpp}, {"Python": [f"python/{name}.md" for name in PYTHON]}, {"JavaScript": f"{TYPES}.md"}]}


def on_files(files, config):
    made, parts = pages()
    made["iframe-worker.js"] = ROOT / "build/site-tools/npm/node_modules/iframe-worker/shim/index.js"
    for path, what in made.items():
        source = {"content": what} if isinstance(what, str) else {"abs_src_path": str(what)}
        files.append(File.generated(config, path, **source))
    config.nav = [{name: parts.get(name, entry[name]) for name in entry} if isinstance(entry, dict) else entry
                  for entry in config.nav]
    version = re.findall(r"#define TENSAFE_VERSION_\w+ (\d+)", (ROOT / "include/tensafe/core/version.hpp").read_text())
    config.site_name += " " + ".".join(version)
    return files


def on_post_page(output, page, config):
    """Mends what the theme and Markdown leave out for whoever does not see the page."""
    return output.replace('role="dialog">', 'role="dialog" aria-label="Search">').replace("<th></th>", "<td></td>")
