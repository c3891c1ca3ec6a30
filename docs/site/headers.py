"""Makes the pages of the headers: texts of what Doxygen read in their comments, declarations as the headers have them."""
import collections
import html
import os
import pathlib
import re
import textwrap
import xml.etree.ElementTree

ROOT = pathlib.Path(__file__).resolve().parents[2]
TYPES = ("struct", "class", "concept")
SECTIONS = {"pre": "Precondition", "post": "Postcondition", "return": "Returns"}


def fenced(text, language=""):
    fence = "`" * max(3, 1 + max(map(len, re.findall("`+", text)), default=0))
    return f"{fence}{language}\n{text.strip(chr(10))}\n{fence}\n\n"


def plain(text):
    """Text that Markdown leaves as it is."""
    return re.sub(r"([\\`*_\[\]#~|])", r"\\\1", html.escape(text, quote=False))


def heading(level, text, anchor):
    return f"{'#' * level} {plain(text)} {{ #{re.sub(r'[^.:_a-zA-Z0-9]', '-', anchor)} }}\n\n"


def name_of(element):
    """The name after the namespace of its room."""
    full = element.findtext("qualifiedname") or element.findtext("compoundname") or element.findtext("name")
    return re.sub(r"<.*>", "", full).removeprefix("tensafe::").split("::", 1)[-1]


def declaration(element):
    """The declaration as the header has it, without body and what only compilers read; its first and last line."""
    where, kind = element.find("location"), element.get("kind")
    declared = where.get("declfile") == where.get("file")
    begin = at = int(where.get("declline" if declared else "line")) - 1
    lines = (ROOT / "include" / where.get("file")).read_text().split("\n")
    if kind == "define":
        return re.match(r"#\s*define \w+(\([^)]*\))?", lines[at])[0], at, at
    while lines[begin - 1].strip() and not re.search(r"^\s*(//|#)|[;{}](\s*//.*)?$|(public|private):$", lines[begin - 1]):
        begin -= 1
    text = "\n".join(lines[begin:])
    whole, depth = kind in ("variable", "typedef", "enum", "concept"), 0
    for end, letter in enumerate(text):
        depth += (letter in "([") - (letter in ")]") + whole * ((letter == "{") - (letter == "}"))
        initializes = kind == "function" and letter == ":" and ":" not in (text[end - 1], text[end + 1])
        if depth == 0 and (letter == ";" or initializes or (letter == "{" and not whole)):
            break
    comment = re.match(r";( *//[^/\n].*)?", text[end:])  # of what is deleted it says what to do
    shown, cut = [], 0
    for line in textwrap.dedent(text[:end].rstrip() + (comment[0] if comment else ";")).split("\n"):
        short = re.sub(r"\bTENSAFE_(COMPILED_\w+|HD_INLINE|HOST_DEVICE|INLINE|AVX\w+) ?", "", line)
        cut = len(line) - len(short) or cut  # what is aligned with the rest of the line moves with it
        shown.append(short[cut:] if short == line and line.startswith(" " * (cut + 1)) else short)
    return "\n".join(shown).strip(), begin, begin + len(shown) - 1


class Headers:
    """What the headers declare outside of `detail`, of each header (line, element, members) in its order."""

    def __init__(self, folder):
        self.entries = collections.defaultdict(list)
        for file in sorted(folder.glob("*.xml")):
            for compound in xml.etree.ElementTree.parse(file).iter("compounddef"):
                kind = compound.get("kind")
                members = [each for each in compound.iter("memberdef") if self.is_public(each)]
                if kind in TYPES and compound.get("prot") != "private":
                    self.add(compound, members)
                for each in members if kind in ("namespace", "file") else ():
                    if (kind == "file") == (each.get("kind") == "define"):
                        self.add(each, [])
        for entries in self.entries.values():
            entries.sort(key=lambda entry: entry[0])
        self.places = {each.get("id"): header for header, entries in self.entries.items()
                       for _, element, members in entries for each in (element, *members)}

    @staticmethod
    def is_public(member):
        return (member.get("prot") == "public" and member.find("location") is not None
                and "detail" not in member.findtext("qualifiedname", "").split("::")
                and (member.get("kind") != "friend" or member.findtext("name").startswith("operator")))

    def add(self, element, members):
        where = element.find("location")
        self.entries[where.get("file")].append((int(where.get("line")), element, members))

    def markdown(self, element, page):
        """The text of a description, with links from this page."""
        inner, kind = plain(element.text or ""), element.tag
        for each in element:
            inner += self.markdown(each, page) + plain(each.tail or "")
        if kind == "computeroutput":
            return f"`{''.join(element.itertext())}`"
        if kind == "verbatim":
            return "\n\n" + fenced(element.text, "cpp")
        if kind == "para":
            return inner.strip() + "\n\n"
        if kind in ("emphasis", "bold"):
            return f"*{inner}*"
        if kind == "listitem":
            return "\n- " + inner.strip().replace("\n", "\n    ") + "\n"
        if kind == "simplesect":
            return f"\n\n**{SECTIONS[element.get('kind')]}:** {inner.strip()}\n\n"
        if kind == "parameterlist":
            return f"\n\n{inner}\n"
        if kind == "parametername":
            return f"`{''.join(element.itertext())}`"
        if kind == "parameteritem":
            name, text = (self.markdown(each, page).strip() for each in element)
            return f"- {name}: {text}\n" if "_error" not in name and "::" not in name else f"- **Throws** {name} {text}\n"
        target = self.places.get(element.get("refid")) if kind == "ref" else None
        if target in (None, page):
            return inner
        return f"[{inner}]({os.path.relpath(target, pathlib.PurePath(page).parent)}.md)"

    def text(self, element, page):
        both = "".join(self.markdown(element.find(f"{each}description"), page) for each in ("brief", "detailed"))
        # What "@throws as above" names is no type.
        return re.sub(r"(?m)^- `(as|what|whatever)`: ", r"- **Throws** \1 ", re.sub(r"\n\s*\n", "\n\n", both)).strip() + "\n\n"

    def members(self, members, page, of, level):
        """Declarations in the order of the file; those without a text stand with the ones directly above them."""
        parts, before, count, out = [], -9, collections.Counter(), ""
        declared = sorted(((*declaration(each), each) for each in members), key=lambda found: found[1])
        for shown, begin, end, each in declared:
            text = self.text(each, page).strip() if not re.match(r"using [\w:]+;", shown) else ""  # a base's
            if parts and not text and (begin - before <= 1 or not parts[-1][1]):
                parts[-1][0].setdefault(shown)  # several names of one declaration are several members
            else:
                parts.append(({shown: None}, text, each.findtext("name")))
            before = max(end, int(each.find("location").get("bodyend") or 0) - 1)
        for shown, text, name in parts:
            count[name] += bool(text)
            if text:
                out += heading(level, name, f"{of}{name}" + (f"_{count[name]}" if count[name] > 1 else ""))
            out += fenced("\n".join(shown), "cpp") + text + "\n\n"
        return out

    def page(self, header):
        out, free = f"# {header.removeprefix('tensafe/')}\n\n" + fenced(f"#include <{header}>", "cpp"), []
        if header not in self.entries:
            return out + fenced((ROOT / "include" / header).read_text(), "cpp")
        for _, element, members in [*self.entries[header], (0, None, [])]:
            if element is not None and element.get("kind") not in TYPES:
                free.append(element)
                continue
            out += self.members(free, header, "", 2)
            free.clear()
            if element is not None:
                name = name_of(element)
                out += (heading(2, name, name) + fenced(declaration(element)[0], "cpp") + self.text(element, header)
                        + self.members(members, header, f"{name}.", 3))
        return out

    def overview(self, room, headers):
        """The list of a room's headers, with the names that each declares."""
        out = f"# {room}\n\n"
        for header in headers:
            names = ", ".join(dict.fromkeys(plain(name_of(element)) for _, element, _ in self.entries[header]))
            out += f"- [{header.removeprefix('tensafe/')}]({header.split('/', 2)[-1]}.md): {names}\n"
        return out
