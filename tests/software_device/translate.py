#!/usr/bin/env python3
"""Translates PTX, the assembly of NVIDIA's virtual machine, to C++ for machine.hpp.

    translate.py [--forms FILE] OUT.cpp IN...

IN are PTX files, or folders of them. Kernels that several files have, and that are equal but for the target, are translated once. What the translator does
not know is an error that names it. The instructions' meaning is that of NVIDIA's manual, "Parallel Thread Execution
ISA", version 9.0, by section title.

A kernel becomes a function that runs one thread from a barrier to the next: registers that are alive at a barrier are
kept for each thread. A sum of a product, both without rounding mode, is refused: ptxas may make one fused multiply-add
of them or not, so that the bits of the result are up to it.
"""
import glob
import os
import re
import sys

WIDTHS = {'8': 8, '16': 16, '32': 32, '64': 64}
BRACE = re.compile('[{}]')
COMPARE = {'eq': '==', 'ne': '!=', 'lt': '<', 'le': '<=', 'gt': '>', 'ge': '>='}


class Unknown(Exception):
    pass


def c_type(name):
    """The C++ type of a PTX type: bits are unsigned."""
    if re.fullmatch(r'[usbf](8|16|32|64)', name):
        return name.replace('b', 'u')
    raise Unknown(f'type .{name}')


def bits(name):
    return int(name[1:])


class Instruction:
    """Guard, operation with its suffixes, operands; `text` for messages."""

    def __init__(self, text):
        self.text = ' '.join(text.split())
        match = re.fullmatch(r'(?:@(!?)(%\w+)\s+)?([a-z0-9_]+(?:\.[a-zA-Z0-9_:]+)*)\s*(.*)', self.text)
        if not match:
            raise Unknown(f'statement "{self.text}"')
        negated, self.guard, operation, rest = match.groups()
        self.negated = bool(negated)
        self.operation = operation
        self.parts = operation.split('.')
        self.operands = split_operands(rest)
        self.target = self.operands[0] if self.parts[0] == 'bra' else None


def split_operands(text):
    result, depth, current = [], 0, ''
    for c in text:
        depth += c in '{[('
        depth -= c in '}])'
        if c == ',' and depth == 0:
            result.append(current.strip())
            current = ''
        else:
            current += c
    if current.strip():
        result.append(current.strip())
    return result


class Kernel:
    def __init__(self, name, parameters, threads, body):
        self.name, self.threads = name, threads
        self.registers = {}   # name -> type
        self.blocks = []      # (label or None, [Instruction])
        self.parameter_offsets, self.parameter_sizes, self.parameter_bytes = {}, [], 0
        for kind, parameter, count in parameters:
            size = WIDTHS[kind[1:]] // 8
            align = 8 if count else size
            self.parameter_bytes = -(-self.parameter_bytes // align) * align
            self.parameter_offsets[parameter] = self.parameter_bytes
            self.parameter_sizes.append(size * int(count or 1))
            self.parameter_bytes += self.parameter_sizes[-1]
        self.sites = []
        self.read(body)

    def read(self, body):
        label, current = None, []
        for line in body:
            if match := re.fullmatch(r'(\$\w+):', line):
                self.blocks.append((label, current))
                label, current = match.group(1), []
            elif match := re.fullmatch(r'\.reg \.(\w+)\s+(%\w+)<(\d+)>', line):
                kind, stem, count = match.groups()
                for i in range(int(count)):
                    self.registers[f'{stem}{i}'] = kind
            elif match := re.fullmatch(r'\.reg \.(\w+)\s+(%?\w+(?:,\s*%?\w+)*)', line):
                for name in re.split(r',\s*', match.group(2)):
                    if self.registers.setdefault(name, match.group(1)) != match.group(1):
                        raise Unknown(f'second type of {name}')
            elif line.startswith('.pragma'):
                pass
            elif line.startswith('.'):
                raise Unknown(f'directive "{line}"')
            else:
                instruction = Instruction(line)
                current.append(instruction)
                if instruction.parts[0] in ('bra', 'ret', 'bar'):
                    self.blocks.append((label, current))
                    label, current = None, []
        self.blocks.append((label, current))
        self.blocks = [(label, code) for label, code in self.blocks if label or code]


def statements(text):
    """One at a time, without comments; labels are statements, too."""
    text = re.sub(r'/\*.*?\*/', ' ', text, flags=re.S)
    text = re.sub(r'//[^\n]*', '', text)
    text = re.sub(r'(\$\w+:)', r'\1;', text)
    for part in text.split(';'):
        part = ' '.join(part.split()).lstrip('{} ')  # scopes: their registers are the kernel's, written before read
        if part:
            yield part.rstrip(':') + ':' if part.startswith('$') and part.endswith(':') else part


def kernels_of(path, wanted=''):
    """All kernels of a PTX file, or those in which a pattern occurs."""
    text = re.sub(r'//[^\n]*', '', open(path).read())
    entry = re.compile(r'(?:\.visible |\.weak )*\.entry (\w+)\(([^)]*)\)([^{]*)\{')
    result, at = [], 0
    head = re.sub(r'\.(version|target|address_size)[^\n]*', '', text[:text.find('.entry')] if '.entry' in text else text)
    while match := entry.search(text, at):
        between = re.sub(r'\.(version|target|address_size)[^\n]*', '', text[at:match.start()])
        check_directives(between)
        depth, brace = 1, None
        while depth:
            brace = BRACE.search(text, brace.end() if brace else match.end())
            depth += 1 if brace.group() == '{' else -1
        body, at = text[match.end():brace.start()], brace.end()
        if not re.search(wanted, body):
            continue
        parameters = re.findall(r'\.param (?:\.align \d+ )?\.(\w+) (\w+)(?:\[(\d+)\])?', match.group(2))
        threads = re.search(r'\.maxntid (\d+)', match.group(3))
        try:
            result.append(Kernel(match.group(1), parameters, int(threads.group(1)) if threads else 0,
                                 statements(body)))
        except Unknown as error:
            raise Unknown(f'{path}: {match.group(1)}: {error}')
    check_directives(re.sub(r'\.(version|target|address_size)[^\n]*', '', text[at:]) if at else head)
    return result


def check_directives(text):
    for directive in text.split(';'):
        directive = ' '.join(directive.split())
        # What a header defines for nobody is let alone; a kernel that uses it is not: its name is no operand.
        if directive and not re.fullmatch(r'\.extern \.shared \.align \d+ \.b8 \w+\[\]|'
                                          r'\.global \.align \d+ \.b8 \w+\[\d+\]', directive):
            raise Unknown(f'directive "{directive}"')


CLASSES = ('integer', 'multiply', 'double', 'convert', 'global', 'shared', 'control')
# Machine instructions of products of 64 bits: one for each product of halves, and sums.
PRODUCTS = {'mul.lo.s64': (3, 0), 'mul.hi.u64': (4, 4)}


def slots_of(i):
    """For counts: about how many machine instructions of each class become of it. Moves and parameters are operands there."""
    name, *s = i.parts
    wide = 2 if s and s[-1] in ('b64', 's64', 'u64') else 1
    if name in ('ld', 'st', 'atom', 'prefetch'):
        return {} if s[0] == 'param' else {'shared' if s[0] == 'shared' else 'global': 1}
    if name in ('mov', 'cvta') or i.operation == 'neg.f64':
        return {}
    if name in ('bra', 'bar', 'ret'):
        return {'control': 1}
    if name == 'cvt':
        if any(t[0] == 'f' for t in s if len(t) == 3 and t != 'rni'):
            return {'convert': 1}
        return {} if i.operation == 'cvt.u64.u32' else {'integer': 1}
    if name in ('div', 'rem'):
        return {'double': 10, 'integer': 6} if 'f64' in s else {'integer': 16, 'convert': 2}
    if name == 'selp':
        return {'integer': 2 if s[-1][1:] == '64' else 1}
    if 'f64' in s:
        return {'double': 1}
    if name in ('mul', 'mad'):
        products, sums = PRODUCTS.get(i.operation, (1, 0))
        return {'multiply': products, 'integer': sums}
    return {'integer': wide}


class Translation:
    """One kernel to the text of a C++ function."""

    def __init__(self, kernel, forms):
        self.k, self.forms = kernel, forms
        self.names = {name: 'r' + re.sub(r'\W', '_', name) for name in kernel.registers}
        everything = [i for _, code in kernel.blocks for i in code]
        self.products = {i.operands[0] for i in everything if i.operation == 'mul.f64'}
        while more := {i.operands[0] for i in everything if i.parts[0] in ('mov', 'neg', 'selp') and
                       self.products & set(i.operands[1:])} - self.products:
            self.products |= more

    # Operands.

    def value(self, operand, kind):
        """An operand as a C++ expression of the PTX type."""
        t = c_type(kind)
        if operand in self.names:
            name = self.names[operand]
            have = self.k.registers[operand]
            if have[0] == 'f' or t[0] == 'f':
                return name if have == kind else f'{t}_of({name})' if t[0] == 'f' else f'({t})bits_of({name})'
            return f'({t}){name}' if bits(have) != bits(kind) or t[0] == 's' else name
        if match := re.fullmatch(r'0[dD]([0-9A-Fa-f]{16})', operand):
            return f'f64_of(0x{match.group(1)}u)'
        if match := re.fullmatch(r'0[fF]([0-9A-Fa-f]{8})', operand):
            return f'f32_of(0x{match.group(1)}u)'
        if re.fullmatch(r'-?\d+|0[xX][0-9A-Fa-f]+U?', operand):
            number = int(operand.rstrip('U'), 0) & (2 ** 64 - 1)
            if t[0] == 'f':
                return f'{t}_of({number}u)'
            return f'({t}){number}u'
        if operand in SPECIAL:
            return f'static_cast<{t}>({SPECIAL[operand]})'
        if operand in self.k.parameter_offsets:
            return f'static_cast<{t}>({self.k.parameter_offsets[operand]})'
        if re.fullmatch(r'\w*shared_memory\w*', operand):
            return f'static_cast<{t}>(t.shared().first)'
        raise Unknown(f'operand "{operand}"')

    def flag(self, operand):
        if self.k.registers.get(operand) != 'pred':
            raise Unknown(f'predicate "{operand}"')
        return self.names[operand]

    def assign(self, operand, kind, expression):
        """Puts a value of a type into a register that may be wider."""
        have = self.k.registers[operand]
        if have == 'pred':
            raise Unknown(f'a number into predicate "{operand}"')
        name, t, width = self.names[operand], c_type(kind), bits(have)
        if have[0] == 'f' or t[0] == 'f':
            return f'{name} = {expression};' if have == kind else \
                f'{name} = bits_of({expression});' if t[0] == 'f' else f'{name} = {c_type(have)}_of({expression});'
        if t[0] == 's' and bits(kind) < width:
            return f'{name} = static_cast<u{width}>(static_cast<s{width}>(static_cast<{t}>({expression})));'
        narrow = '' if bits(kind) >= width else f'(u{bits(kind)})'
        return f'{name} = {narrow}({expression});'  # to the register's width

    def address(self, operand):
        match = re.fullmatch(r'\[([%\w$]+)(?:\+(-?\d+))?\]', operand)
        if not match:
            raise Unknown(f'address "{operand}"')
        base, offset = match.groups()
        if base in self.names and bits(self.k.registers[base]) != 64:
            base_text = f'u64{{{self.names[base]}}}'
        else:
            base_text = self.value(base, 'u64')
        return base_text if offset is None else f'{base_text} + static_cast<u64>(s64{{{offset}}})'

    def site(self, i):
        self.k.sites.append(i.text)
        return len(self.k.sites) - 1

    # Instructions.

    def translate(self, i):
        """C++ of an instruction that is neither a branch nor a barrier."""
        name = i.parts[0]
        method = getattr(self, 'do_' + name, None)
        if method is None:
            raise Unknown(f'instruction "{i.text}"')
        try:
            text = method(i, [p for p in i.parts[1:]], i.operands)
        except (Unknown, ValueError, IndexError, KeyError) as error:
            raise Unknown(f'instruction "{i.text}" ({error})')
        self.forms.add(i.operation)
        return text

    def integer(self, i, suffixes, operands, expression):
        """d = expression(a, b, c) in the one type."""
        (kind,) = suffixes
        if kind[0] == 'f':
            raise Unknown('not for floating point')
        d, *rest = operands
        return self.assign(d, kind, expression(*[self.value(x, 'u' + kind[1:] if EXACT_BITS.get(i.parts[0]) else kind)
                                                 for x in rest]))

    def float_kind(self, suffixes):
        """Of .f64 and .rn.f64: both round to the nearest. (f32 is not used.)"""
        if suffixes not in (['f64'], ['rn', 'f64']):
            raise Unknown('expected .f64 or .rn.f64')
        return 'f64'

    def arithmetic(self, i, s, o, operator):
        if s[-1] == 'f64':
            kind = self.float_kind(s)
            if s == ['f64'] and i.parts[0] in ('add', 'sub') and self.products & set(o[1:]):
                raise Unknown('a sum that ptxas may fuse with its product, or not')
            return self.assign(o[0], kind, f'{self.value(o[1], kind)} {operator} {self.value(o[2], kind)}')
        if i.operation in ('add.cc.s64', 'addc.cc.s64'):
            a, b = (self.value(x, 'u64') for x in o[1:])
            carry = ' + cc' if i.parts[0] == 'addc' else ''
            return f'{{ const u128 sum = u128{{{a}}} + {b}{carry}; cc = (u32)(sum >> 64); ' + \
                self.assign(o[0], 'u64', '(u64)sum') + ' }'
        return self.integer(i, s, o, lambda a, b: f'{a} {operator} {b}')

    def do_add(self, i, s, o):
        return self.arithmetic(i, s, o, '+')

    def do_sub(self, i, s, o):
        return self.arithmetic(i, s, o, '-')

    do_addc = do_add

    def do_mul(self, i, s, o):
        if s[-1] == 'f64':
            return self.arithmetic(i, s, o, '*')
        part, kind = s
        a, b = (self.value(x, kind) for x in o[1:])
        return self.product(o[0], part, kind, a, b, '')

    def do_mad(self, i, s, o):
        part, kind = s
        a, b = (self.value(x, kind) for x in o[1:3])
        c = self.value(o[3], ('u' if part != 'wide' else kind[0]) + str(bits(kind) * (2 if part == 'wide' else 1)))
        return self.product(o[0], part, kind, a, b, f' + {c}')

    def product(self, d, part, kind, a, b, plus):
        if part == 'lo':
            u = 'u' + kind[1:]
            return self.assign(d, u, f'({u}){a} * (u64){b}{plus}')
        if part == 'hi' and kind == 'u64' and not plus:
            return self.assign(d, kind, f'multiply_high({a}, {b})')
        if part == 'wide' and bits(kind) <= 32:
            w = kind[0] + str(2 * bits(kind))
            u = 'u' + str(2 * bits(kind))
            return self.assign(d, u, f'({u})(({w}){a} * ({w}){b})' + (f' + ({u}){plus[3:]}' if plus else ''))
        raise Unknown(f'mul.{part}.{kind}')

    def do_sqrt(self, i, s, o):
        if s != ['rn', 'f64']:
            raise Unknown('expected .rn.f64')
        return self.assign(o[0], 'f64', f'std::sqrt({self.value(o[1], "f64")})')

    def do_fma(self, i, s, o):
        if s != ['rn', 'f64']:
            raise Unknown('expected .rn.f64')
        a, b, c = (self.value(x, 'f64') for x in o[1:])
        return self.assign(o[0], 'f64', f'std::fma({a}, {b}, {c})')

    def do_div(self, i, s, o):
        if s == ['rn', 'f64']:
            return self.arithmetic(i, s, o, '/')
        return self.unsigned(i, s, o, 'divide')

    def do_rem(self, i, s, o):
        return self.unsigned(i, s, o, 'remainder')

    def unsigned(self, i, s, o, function):
        if s not in (['u32'], ['u64']):
            raise Unknown('expected .u32 or .u64')
        return self.integer(i, s, o, lambda a, b: f'{function}({a}, {b})')

    def do_neg(self, i, s, o):
        if s == ['f64']:
            return self.assign(o[0], 'f64', f'-{self.value(o[1], "f64")}')
        return self.integer(i, s, o, lambda a: f'0 - {a}')

    def two(self, i, s, o, function):
        (kind,) = s
        if kind[0] == 'f':
            raise Unknown('not for floating point')
        a, b = (self.value(x, kind) for x in o[1:])
        return self.assign(o[0], kind, f'{function}<{c_type(kind)}>({a}, {b})')

    def do_min(self, i, s, o):
        return self.two(i, s, o, 'smaller')

    def do_max(self, i, s, o):
        return self.two(i, s, o, 'larger')

    def logic(self, i, s, o, operator):
        if s == ['pred']:
            return f'{self.flag(o[0])} = {self.flag(o[1])} {operator} {self.flag(o[2])};'
        return self.integer(i, s, o, lambda a, b: f'{a} {operator} {b}')

    def do_and(self, i, s, o):
        return self.logic(i, s, o, '&')

    def do_or(self, i, s, o):
        return self.logic(i, s, o, '|')

    def do_xor(self, i, s, o):
        return self.logic(i, s, o, '^')

    def do_not(self, i, s, o):
        if s == ['pred']:
            return f'{self.flag(o[0])} = !{self.flag(o[1])};'
        return self.integer(i, s, o, lambda a: f'~{a}')

    def do_shl(self, i, s, o):
        (kind,) = s
        return self.assign(o[0], kind, f'shift_left<{c_type(kind)}>({self.value(o[1], kind)}, {self.value(o[2], "u32")})')

    def do_shr(self, i, s, o):
        (kind,) = s
        return self.assign(o[0], kind,
                           f'shift_right<{c_type(kind)}>({self.value(o[1], kind)}, {self.value(o[2], "u32")})')

    def do_shf(self, i, s, o):
        if s != ['l', 'wrap', 'b32']:
            raise Unknown('expected .l.wrap.b32')
        a, b, c = (self.value(x, 'u32') for x in o[1:])
        return self.assign(o[0], 'u32', f'funnel_left({a}, {b}, {c} & 31)')

    def do_bfi(self, i, s, o):
        (kind,) = s
        a, b = (self.value(x, kind) for x in o[1:3])
        c, d = (self.value(x, 'u32') for x in o[3:])
        return self.assign(o[0], kind, f'insert_bits<{c_type(kind)}>({a}, {b}, {c}, {d})')

    def do_prmt(self, i, s, o):
        if s != ['b32']:
            raise Unknown('expected .b32')
        a, b, c = (self.value(x, 'u32') for x in o[1:])
        return self.assign(o[0], 'u32', f'permute_bytes({a}, {b}, {c})')

    def do_selp(self, i, s, o):
        (kind,) = s
        a, b = (self.value(x, kind) for x in o[1:3])
        return self.assign(o[0], kind, f'{self.flag(o[3])} ? {a} : {b}')

    def do_setp(self, i, s, o):
        compare, kind = s
        a, b = (self.value(x, kind) for x in o[1:3])
        unordered = kind == 'f64' and len(compare) == 3 and compare[2] == 'u'
        operator = COMPARE[compare[:2] if unordered else compare]
        if kind[0] == 'f' and kind != 'f64':
            raise Unknown(f'comparison .{compare}.{kind}')
        text = f'{a} {operator} {b}'
        if unordered and operator != '!=':
            text = f'({text} || std::isunordered({a}, {b}))'
        elif kind == 'f64' and compare == 'ne':
            text = f'({text} && !std::isunordered({a}, {b}))'
        return f'{self.flag(o[0])} = {text};'

    def do_mov(self, i, s, o):
        (kind,) = s
        if kind == 'pred':
            return f'{self.flag(o[0])} = {self.flag(o[1])};' if o[1] in self.names else \
                f'{self.flag(o[0])} = {int(o[1]) != 0 and "true" or "false"};'
        if o[0].startswith('{'):
            low, high = split_operands(o[0][1:-1])
            half = 'u' + str(bits(kind) // 2)
            a = self.value(o[1], 'u' + kind[1:])
            return f'{{ const u{bits(kind)} whole = {a}; ' + self.assign(low, half, f'static_cast<{half}>(whole)') + \
                ' ' + self.assign(high, half, f'static_cast<{half}>(whole >> {bits(half)})') + ' }'
        if o[1].startswith('{'):
            half = 'u' + str(bits(kind) // 2)
            low, high = (self.value(x, half) for x in split_operands(o[1][1:-1]))
            return self.assign(o[0], 'u' + kind[1:], f'(u{bits(kind)}{{{high}}} << {bits(half)}) | {low}')
        return self.assign(o[0], kind, self.value(o[1], kind))

    def do_cvt(self, i, s, o):
        *how, to, kind = s
        a = self.value(o[1], kind)
        if to[0] != 'f' and kind[0] != 'f' and not how:
            return self.assign(o[0], to, f'static_cast<{c_type(to)}>({a})')
        if (to, kind) == ('f64', 'f32') and not how:
            return self.assign(o[0], to, f'static_cast<f64>({a})')
        if to == 'f64' and kind[0] in 'us' and how == ['rn']:
            return self.assign(o[0], to, f'static_cast<f64>({a})')
        if (how, to, kind) == (['rni'], 'f64', 'f64'):
            return self.assign(o[0], to, f'std::nearbyint({a})')
        if (how, to, kind) == (['rn'], 'f32', 'f64'):
            return self.assign(o[0], to, f'static_cast<f32>({a})')
        raise Unknown('conversion')

    def do_prefetch(self, i, s, o):
        if s != ['global', 'L2']:
            raise Unknown('expected .global.L2')
        return f'static_cast<void>({self.address(o[0])});'  # changes no value, and any address will do

    def do_cvta(self, i, s, o):
        if s not in (['to', 'global', 'u64'], ['global', 'u64'], ['to', 'shared', 'u64'], ['shared', 'u64']):
            raise Unknown('expected .global.u64 or .shared.u64')
        return self.assign(o[0], 'u64', self.value(o[1], 'u64'))  # both windows stand at their generic addresses

    def memory(self, s):
        """Where, how many and of what type: of ld and st."""
        s = list(s)
        where = s.pop(0) if s[0] in ('global', 'shared', 'param') else 'generic'
        count = int(s.pop(0)[1:]) if s[0] in ('v2', 'v4') else 1
        (kind,) = s
        return where, count, kind

    def do_ld(self, i, s, o):
        where, count, kind = self.memory(s)
        to = split_operands(o[0][1:-1]) if o[0].startswith('{') else [o[0]]
        t, site = c_type(kind), self.site(i)
        if len(to) != count:
            raise Unknown('as many registers as values')
        if where == 'param':
            return f'{{ const u64 at = {self.address(o[1])}; ' + ' '.join(
                self.assign(d, kind, f't.parameter<{t}>(at + {n * bits(kind) // 8}, {site})')
                for n, d in enumerate(to)) + ' }'
        place = f't.generic(at)' if where == 'generic' else f't.{where}()'
        return f'{{ const u64 at = {self.address(o[1])}; {t} v[{count}]; t.load<{t}, {count}>({place}, at, v, {site}); ' + \
            ' '.join(self.assign(d, kind, f'v[{n}]') for n, d in enumerate(to)) + ' }'

    def do_st(self, i, s, o):
        where, count, kind = self.memory(s)
        values = split_operands(o[1][1:-1]) if o[1].startswith('{') else [o[1]]
        t, site = c_type(kind), self.site(i)
        if len(values) != count or where == 'param':
            raise Unknown('as many registers as values')
        place = f't.generic(at)' if where == 'generic' else f't.{where}()'
        listed = ', '.join(self.value(x, kind) for x in values)
        return f'{{ const u64 at = {self.address(o[0])}; const {t} v[] = {{{listed}}}; ' + \
            f't.store<{t}, {count}>({place}, at, v, {site}); }}'

    def atomic(self, i, s, operands):
        where, function, kind = s
        expression = {'or': 'old | b', 'add': 'old + b'}[function]
        if where != 'global':
            raise Unknown('expected .global')
        t = 'u' + kind[1:]
        return f't.atomic<{t}>({self.address(operands[0])}, {self.site(i)}, ' + \
            f'[b = {self.value(operands[1], t)}]({t} old) {{ return static_cast<{t}>({expression}); }})'

    def do_atom(self, i, s, o):
        return self.assign(o[0], 'u' + s[-1][1:], self.atomic(i, s, o[1:]))

    # Registers that live at a barrier.

    def written(self, i):
        if i.parts[0] in ('st', 'prefetch', 'bra', 'bar', 'ret'):
            return []
        return [x for x in re.findall(r'[%\w$]+', i.operands[0]) if x in self.names]

    def read(self, i):
        operands = i.operands if i.parts[0] in ('st', 'prefetch') else i.operands[1:]
        return [x for x in re.findall(r'[%\w$]+', ' '.join(operands)) if x in self.names] + \
            ([i.guard] if i.guard else [])

    def live_at_barriers(self):
        """For each block that ends with a barrier, the registers that are read after it before they are written."""
        blocks = self.k.blocks
        labels = {label: n for n, (label, _) in enumerate(blocks) if label}
        first_use, kills, follow = [], [], []
        for n, (_, code) in enumerate(blocks):
            use, kill = set(), set()
            for i in code:
                use |= set(self.read(i)) - kill
                kill |= set() if i.guard else set(self.written(i))
            first_use.append(use)
            kills.append(kill)
            last = code[-1] if code else None
            after = []
            if last is not None and last.parts[0] == 'bra':
                after.append(labels[last.target])
            if last is None or last.guard or last.parts[0] not in ('bra', 'ret'):
                if n + 1 < len(blocks):
                    after.append(n + 1)
            follow.append(after)
        live = [set() for _ in blocks]
        changed = True
        while changed:
            changed = False
            for n in reversed(range(len(blocks))):
                new = first_use[n] | (set().union(*(live[m] for m in follow[n])) - kills[n])
                if new != live[n]:
                    live[n], changed = new, True
        return {n: sorted(set().union(*(live[m] for m in follow[n])))
                for n, (_, code) in enumerate(blocks) if code and code[-1].parts[0] == 'bar'}

    def text(self, function):
        k, live = self.k, self.live_at_barriers()
        lines = [f'// {k.name}', f'int {function}(thread& t, u64* saved, int from) {{', '    u32 cc = 0;']
        for kind in sorted(set(k.registers.values())):
            names = [self.names[r] for r in k.registers if k.registers[r] == kind]
            c = 'bool' if kind == 'pred' else c_type(kind)
            lines.append(f'    {c} {", ".join(names)};')
        lines.append('    switch (from) {')
        barriers = {n: at + 1 for at, n in enumerate(sorted(live))}
        for n, number in barriers.items():
            loads = ' '.join(self.assign(r, 'u64', f'saved[{at}]') if k.registers[r] != 'pred' else
                             f'{self.names[r]} = saved[{at}] != 0;' for at, r in enumerate(live[n]))
            lines.append(f'        case {number}: {loads} goto after_{number};')
        lines.append('        default: break;\n    }')
        for n, (label, code) in enumerate(k.blocks):
            if label:
                lines.append(f'{label.replace("$", "label_")}:')
            lines.append(f'    t.visit({n});')
            for i in code:
                guard = f'if ({"!" if i.negated else ""}{self.flag(i.guard)}) ' if i.guard else ''
                if i.parts[0] == 'bra':
                    self.forms.add(i.operation)
                    lines.append(f'    {guard}goto {i.target.replace("$", "label_")};')
                elif i.parts[0] == 'ret':
                    self.forms.add(i.operation)
                    lines.append(f'    {guard}return -1;')
                elif i.parts[0] == 'bar':
                    if i.guard or i.operation != 'bar.sync' or i.operands != ['0']:
                        raise Unknown(f'{k.name}: barrier "{i.text}"')
                    self.forms.add(i.operation)
                    number = barriers[n]
                    keep = ' '.join(f'saved[{at}] = {self.names[r] if k.registers[r] == "pred" else self.value(r, "u64")};'
                                    for at, r in enumerate(live[n]))
                    lines.append(f'    {keep} return {number};\nafter_{number}:;')
                else:
                    lines.append(f'    {guard}{{ {self.translate(i)} }}' if guard else f'    {self.translate(i)}')
        lines.append('    return -1;\n}')
        self.saved = max([len(v) for v in live.values()], default=0)
        return '\n'.join(lines)


EXACT_BITS = {name: True for name in ('add', 'sub', 'neg', 'and', 'or', 'xor', 'not')}
SPECIAL = {'%tid.x': 't.tid()', '%ntid.x': 't.ntid()'}
for axis, letter in enumerate('xyz'):
    SPECIAL[f'%ctaid.{letter}'] = f't.ctaid({axis})'
    SPECIAL[f'%nctaid.{letter}'] = f't.nctaid({axis})'


def quoted(text):
    return '"' + text.replace('\\', '\\\\').replace('"', '\\"') + '"'


def ptx_files(places):
    result = []
    for place in places:
        result += sorted(glob.glob(os.path.join(place, '*.ptx'))) if os.path.isdir(place) else [place]
    return result


def main(arguments):
    forms_file = arguments[arguments.index('--forms') + 1] if '--forms' in arguments else None
    plain = [a for a in arguments if not a.startswith('--') and a != forms_file]
    out, sources = plain[0], ptx_files(plain[1:])
    forms, texts, functions, tables = set(), [], {}, []
    for source in sources:
        architecture = re.search(r'\.target sm_(\d+)', open(source).read()).group(1)
        rows = []
        for kernel in kernels_of(source):
            translation = Translation(kernel, forms)
            try:
                text = translation.text('FUNCTION')
            except Unknown as error:
                raise Unknown(f'{source}: {kernel.name}: {error}')
            if text not in functions:
                functions[text] = f'kernel_{len(functions)}'
                name = functions[text]
                sites = ', '.join(quoted(s) for s in kernel.sites) or 'nullptr'
                places = ', '.join(f'{{{at}, {size}}}' for at, size in zip(kernel.parameter_offsets.values(),
                                                                           kernel.parameter_sizes)) or '{0, 0}'
                rows_of = (', '.join(str(sum(slots.get(c, 0) for slots in map(slots_of, code))) for c in CLASSES)
                           for _, code in kernel.blocks)
                table = ', '.join(f'{{{row}}}' for row in rows_of)
                texts.append(text.replace('FUNCTION', name, 1) +
                             f'\nconst u16 {name}_instructions[][counts::classes] = {{{table}}};' + f'\nconst char* const {name}_sites[] = {{{sites}}};'
                             f'\nconst parameter {name}_parameters[] = {{{places}}};')
            name = functions[text]
            rows.append(f'    {{{quoted(kernel.name)}, {kernel.parameter_bytes}, {len(kernel.parameter_sizes)}, '
                        f'{name}_parameters, {kernel.threads}, {translation.saved}, {len(kernel.blocks)}, '
                        f'{name}_instructions, {name}, {name}_sites}},')
        if rows:
            tables.append(f'const kernel of_{architecture}[] = {{\n' + '\n'.join(rows) +
                          f'\n}};\nconst registry add_{architecture}({architecture}, of_{architecture}, {len(rows)});')
    with open(out, 'w') as file:
        file.write('// Written by translate.py.\n#include "machine.hpp"\n\nnamespace software_device {\nnamespace {\n\n' +
                   '\n\n'.join(texts + tables) + '\n\n}  // namespace\n}  // namespace software_device\n')
    if forms_file:
        with open(forms_file, 'w') as file:
            file.write('\n'.join(sorted(forms)) + '\n')


if __name__ == '__main__':
    try:
        main(sys.argv[1:])
    except Unknown as error:
        sys.exit(f'translate.py: unknown {error}')
