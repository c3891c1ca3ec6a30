#!/usr/bin/env python3
"""Each form of instruction at its edges, against the manual's definition written down here in unbounded integers.

    forms_test.py WORK COMPILER MACHINE.o... -- FORMS...

FORMS are files of the forms that the device tests use: one that has no test here is a failure.
"""
import math
import os
import random
import struct
import subprocess
import sys
from fractions import Fraction

HERE = os.path.dirname(os.path.abspath(__file__))
WORD = {8: 'rs', 16: 'rs', 32: 'r', 64: 'rd'}


def bits(kind):
    return int(kind[1:])


def number(kind, pattern):
    """The value of a bit pattern."""
    pattern &= 2 ** bits(kind) - 1
    if kind[0] == 'f':
        return struct.unpack('<d' if kind == 'f64' else '<f', pattern.to_bytes(bits(kind) // 8, 'little'))[0]
    return pattern - 2 ** bits(kind) if kind[0] == 's' and pattern >> (bits(kind) - 1) else pattern


def pattern(kind, value):
    """And back. Integers wrap."""
    if kind == 'f64':
        return int.from_bytes(struct.pack('<d', value), 'little')
    if kind == 'f32':  # to the nearest, ties to even
        try:
            return int.from_bytes(struct.pack('<f', value), 'little')
        except OverflowError:
            return 0xff800000 if value < 0 else 0x7f800000
    return value & 2 ** bits(kind) - 1


def nearest(exact, sign_of_zero=1.0):
    """The double next to a fraction, ties to even."""
    if exact == 0:
        return math.copysign(0.0, sign_of_zero)
    try:
        return exact.numerator / exact.denominator
    except OverflowError:
        return math.inf if exact > 0 else -math.inf


def fma(a, b, c):
    if math.isnan(a) or math.isnan(b) or math.isnan(c):
        return math.nan
    if math.isinf(a) or math.isinf(b):
        return a * b + c
    if math.isinf(c):
        return c
    exact = Fraction(a) * Fraction(b) + Fraction(c)
    product_sign = math.copysign(1, a) * math.copysign(1, b)
    if exact == 0:
        return -0.0 if product_sign < 0 and math.copysign(1, c) < 0 and (a == 0 or b == 0) and c == 0 else 0.0
    return nearest(exact)


def divide(a, b):
    if b != 0:
        return a / b
    if a == 0 or math.isnan(a):
        return math.nan
    return math.copysign(math.inf, math.copysign(1, a) * math.copysign(1, b))


def round_to_even(a):
    return math.copysign(float(round(a)), a) if abs(a) < 2.0 ** 52 else a


def shift_left(a, n, width):
    return a << n if n < width else 0


def shift_right(a, n, width):
    return a >> min(n, width)  # of a negative number: copies of the sign


def insert(a, b, position, length, width):
    position, length = position & 255, length & 255
    mask = ((1 << length) - 1) << position & 2 ** width - 1
    return b & ~mask | a << position & mask


def permute(a, b, selection):
    source = (b << 32 | a).to_bytes(8, 'little')
    result = []
    for i in range(4):
        chosen = selection >> 4 * i & 15
        byte = source[chosen & 7]
        result.append((255 if byte & 128 else 0) if chosen & 8 else byte)
    return int.from_bytes(bytes(result), 'little')


def compare(name, a, b):
    unordered = isinstance(a, float) and (math.isnan(a) or math.isnan(b))
    plain = name[:2]
    if unordered:
        return len(name) == 3
    return {'eq': a == b, 'ne': a != b, 'lt': a < b, 'le': a <= b, 'gt': a > b, 'ge': a >= b}[plain]


def parts_of(form):
    """What a form's test needs: types of operands and result, the instruction's text, and its definition."""
    name, *s = form.split('.')
    kind = s[-1]
    n = int(kind[1:]) if kind[1:].isdigit() else 0
    same = {
        'add': lambda a, b: a + b, 'sub': lambda a, b: a - b, 'and': lambda a, b: a & b, 'or': lambda a, b: a | b,
        'xor': lambda a, b: a ^ b, 'min': min, 'max': max, 'neg': lambda a: -a, 'not': lambda a: ~a,
        'rem': lambda a, b: int(math.fmod(a, b)) if n < 50 else a % b, 'div': lambda a, b: a // b,
        'mov': lambda a: a,
    }
    if kind == 'pred':
        function = {'and': lambda a, b: a & b, 'or': lambda a, b: a | b, 'xor': lambda a, b: a ^ b,
                    'not': lambda a: 1 - a, 'mov': lambda a: a}[name]
        count = function.__code__.co_argcount
        reads = ' '.join(f'and.b64 %rd1{i}, %rd{i}, 1; setp.ne.s64 %p{i}, %rd1{i}, 0;' for i in range(1, count + 1))
        text = f'{reads} {form} %p9, ' + ', '.join(f'%p{i}' for i in range(1, count + 1)) + '; selp.u64 %rd9, 1, 0, %p9;'
        return ['u64'] * count, 'u64', text, lambda *x: function(*(y & 1 for y in x)), True
    if name in ('add', 'addc') and 'cc' in s:
        # Two words: a + b, then the carry into 0 + 0 through an addc.cc that is the second of three.
        t = 'u64'
        text = f'add.cc.s64 %rd10, %rd1, %rd2; addc.cc.s64 %rd11, %rd3, %rd3; addc.cc.s64 %rd12, %rd4, 0; xor.b64 %rd13, %rd11, %rd10; xor.b64 %rd9, %rd13, %rd12;'
        def carried(a, b, c, d):
            low = a + b
            middle = 2 * c + (low >> 64)
            high = d + (middle >> 64)
            return (low ^ middle ^ high) & 2 ** 64 - 1
        return [t] * 4, t, text, carried, True
    if name == 'setp':
        return [kind] * 2, 'u64', f'{form} %p1, A, B; selp.u64 %rd9, 1, 0, %p1;', \
            lambda a, b: int(compare(s[0], a, b)), True
    if name == 'selp':
        return [kind, kind, 'u64'], kind, f'and.b64 %rd13, %rd3, 1; setp.ne.s64 %p1, %rd13, 0; {form} R, A, B, %p1;', \
            lambda a, b, c: a if c & 1 else b, False
    if kind == 'f64' and name != 'cvt':
        function = {'add': lambda a, b: a + b, 'sub': lambda a, b: a - b, 'mul': lambda a, b: a * b, 'div': divide,
                    'fma': fma, 'neg': lambda a: -a, 'mov': lambda a: a,
                    'sqrt': lambda a: math.nan if a < 0 or math.isnan(a) else math.sqrt(a)}[name]
        count = function.__code__.co_argcount
        return ['f64'] * count, 'f64', f'{form} R, ' + ', '.join('ABC'[:count]) + ';', function, False
    if name in ('shl', 'shr'):
        function = shift_left if name == 'shl' else shift_right
        return [kind, 'u32'], kind, f'{form} R, A, B;', lambda a, b: function(a, b, n), False
    if name == 'shf':
        return ['b32', 'b32', 'u32'], 'b32', f'{form} R, A, B, C;', \
            lambda a, b, c: ((b << 32 | a) << (c & 31)) >> 32, False
    if name == 'bfi':
        return [kind, kind, 'u32', 'u32'], kind, f'{form} R, A, B, C, D;', lambda a, b, c, d: insert(a, b, c, d, n), False
    if name == 'prmt':
        return ['b32', 'b32', 'u32'], 'b32', f'{form} R, A, B, C;', permute, False
    if name == 'mul' and s[0] in ('lo', 'hi', 'wide'):
        result = kind[0] + str(2 * n) if s[0] == 'wide' else kind
        return [kind] * 2, result, f'{form} R, A, B;', lambda a, b: a * b >> n if s[0] == 'hi' else a * b, False
    if name == 'mad':
        result = kind[0] + str(2 * n) if s[0] == 'wide' else kind
        return [kind, kind, result], result, f'{form} R, A, B, C;', lambda a, b, c: a * b + c, False
    if name == 'cvt':
        to = s[-2]
        if s[0] == 'rni':
            return [kind], to, f'{form} R, A;', round_to_even, False
        if to[0] == 'f':
            return [kind], to, f'{form} R, A;', lambda a: float(a), False
        return [kind], to, f'{form} R, A;', lambda a: a, False
    if name in same:
        count = {'neg': 1, 'not': 1, 'mov': 1}.get(name, 2)
        return [kind] * count, kind, f'{form} R, ' + ', '.join('AB'[:count]) + ';', same[name], False
    return None


FILES = {'f32': 'f', 'f64': 'fd'}
# Of 8 bits there are only memory and conversions; registers have 16 bits at least.
MOVES = {16: 'cvt.u16.u64', 32: 'cvt.u32.u64', 64: 'mov.b64'}


def register(kind, i):
    return f'%{FILES.get(kind, WORD[bits(kind)])}{i}'


def kernel(name, body, extra=''):
    return f'''
.visible .entry {name}(.param .u64 {name}_param_0, .param .u64 {name}_param_1{extra})
{{
.reg .pred %p<20>; .reg .b16 %rs<40>; .reg .b32 %r<40>; .reg .b64 %rd<60>; .reg .f32 %f<20>; .reg .f64 %fd<20>;
ld.param.u64 %rd20, [{name}_param_0]; ld.param.u64 %rd21, [{name}_param_1];
cvta.to.global.u64 %rd22, %rd20; cvta.to.global.u64 %rd23, %rd21;
mov.u32 %r20, %tid.x; mul.wide.u32 %rd24, %r20, 32; add.s64 %rd25, %rd22, %rd24;
mul.wide.u32 %rd26, %r20, 8; add.s64 %rd27, %rd23, %rd26;
ld.global.v2.u64 {{%rd1, %rd2}}, [%rd25]; ld.global.v2.u64 {{%rd3, %rd4}}, [%rd25+16];
{body}
st.global.u64 [%rd27], %rd9; ret;
}}
'''


def operation(name, kinds, result, text, done):
    """The kernel of an operation: words to typed registers, the instruction, the result to a word."""
    body = []
    for i, kind in enumerate(kinds, 1):
        if kind[0] == 'f':
            body.append(f'mov.b64 %fd{i}, %rd{i};' if kind == 'f64' else
                        f'cvt.u32.u64 %r{i}, %rd{i}; mov.b32 %f{i}, %r{i};')
        elif bits(kind) == 8:
            body.append(f'cvt.u16.u64 %rs{i}, %rd{i};')
        elif bits(kind) < 64:
            body.append(f'{MOVES[bits(kind)]} %{WORD[bits(kind)]}{i}, %rd{i};')
    if done:
        return kernel(name, '\n'.join(body + [replaced(text, kinds, None)]))
    target = register(result, 10)
    body.append(replaced(text, kinds, target))
    body.append({'f64': f'mov.b64 %rd9, {target};', 'f32': f'mov.b32 %r10, {target}; cvt.u64.u32 %rd9, %r10;'}.get(result) or
                (f'mov.b64 %rd9, {target};' if bits(result) == 64 else f'cvt.u64.u{max(16, bits(result))} %rd9, {target};'))
    return kernel(name, '\n'.join(body))


def replaced(text, kinds, target):
    words = text.replace(';', ' ; ').replace(',', ' , ').split(' ')
    names = {'R': target, **{'ABCD'[i]: register(kind, i + 1) for i, kind in enumerate(kinds)}}
    return ' '.join(names.get(w, w) or w for w in words)


def memory(form):
    """A kernel of a load or store, and its definition: what goes through memory comes back."""
    name, *s = form.split('.')
    if name == 'prefetch':  # it changes nothing, wherever it points
        identifier = form.replace('.', '_')
        return kernel(identifier, f'{form} [%rd25]; {form} [%rd2+16]; mov.b64 %rd9, %rd1;'), lambda *x: x[0]
    where = s[0] if s[0] in ('global', 'shared', 'param') else 'generic'
    kind = s[-1]
    count = next((int(x[1]) for x in s if x in ('v2', 'v4')), 1)
    size = bits(kind) // 8
    identifier = form.replace('.', '_')
    registers = [register(kind, 10 + i) for i in range(count)]
    listed = '{' + ', '.join(registers) + '}' if count > 1 else registers[0]
    plain = {1: 'u8', 2: 'u16', 4: 'u32', 8: 'u64'}[size]
    to_word = {'f64': 'mov.b64 {w}, {r};', 'f32': 'mov.b32 %r30, {r}; cvt.u64.u32 {w}, %r30;'}.get(
        kind, 'mov.b64 {w}, {r};' if size == 8 else 'cvt.u64.u%d {w}, {r};' % max(16, 8 * size))
    from_word = {'f64': 'mov.b64 {r}, {w};', 'f32': 'mov.b32 {r}, {w};'}.get(
        kind, 'mov.b64 {r}, {w};' if size == 8 else f'cvt.u{max(16, 8 * size)}.u64 {{r}}, {{w}};')
    sum_up = 'mov.u64 %rd9, 0;' + ''.join(
        ' ' + to_word.format(w='%rd30', r=r) + ' mul.lo.s64 %rd9, %rd9, 31; add.s64 %rd9, %rd9, %rd30;' for r in registers)

    def total(values):
        result = 0
        for v in values:
            result = result * 31 + v
        return result

    shared = f'mov.u64 %rd31, shared_memory; mul.wide.u32 %rd32, %r20, {size * count}; add.s64 %rd33, %rd31, %rd32;'
    extend = {'s8': 16}.get(kind)

    def loaded(a):
        raw = a.to_bytes(32, 'little')
        values = [int.from_bytes(raw[size * i:size * i + size], 'little') for i in range(count)]
        return [pattern(f'u{extend}', number(kind, v)) if extend else v for v in values]

    def whole(*operands):
        return total(loaded(operands[0] | operands[1] << 64 | operands[2] << 128 | operands[3] << 192))

    if name == 'ld' and where == 'global':
        return kernel(identifier, f'{form} {listed}, [%rd25]; {sum_up}'), whole
    if name == 'ld' and where == 'param':
        # The addresses of operands and results, as they came: compared with what ld.param.u64 read.
        words = 8 * 4 // (size * count)
        body = f'{form} {listed}, [{identifier}_param_0]; ld.param.u64 %rd40, [{identifier}_param_0]; ld.param.u64 %rd41, [{identifier}_param_1];'
        checks = {8: ['%rd40', '%rd41']}.get(size)
        low = ['mov.b32 %r10, %f10;' if kind == 'f32' else '', 'cvt.u64.u32 %rd42, %r10;', 'and.b64 %rd40, %rd40, 4294967295;']
        if size == 8:
            sums = ' '.join(to_word.format(w='%rd30', r=r) + f' sub.s64 %rd50, %rd30, {c}; or.b64 %rd9, %rd9, %rd50;'
                            for r, c in zip(registers, checks))
        elif count == 1:
            sums = ' '.join(low) + ' sub.s64 %rd50, %rd42, %rd40; or.b64 %rd9, %rd9, %rd50;'
        else:
            sums = ' '.join(low) + ' sub.s64 %rd50, %rd42, %rd40; or.b64 %rd9, %rd9, %rd50; ' \
                'ld.param.u64 %rd40, [' + identifier + '_param_0]; shr.u64 %rd40, %rd40, 32; cvt.u64.u32 %rd42, %r11; ' \
                'sub.s64 %rd50, %rd42, %rd40; or.b64 %rd9, %rd9, %rd50;'
        return kernel(identifier, 'mov.u64 %rd9, 0; ' + body + ' ' + sums), lambda *x: 0
    if name == 'ld' and where == 'shared':
        stores = ' '.join(
            f'ld.global.{plain} {register(plain, 10)}, [%rd25+{size * i}]; st.shared.{plain} [%rd33+{size * i}], {register(plain, 10)};'
            for i in range(count))
        return kernel(identifier, f'{shared} {stores} bar.sync 0; {form} {listed}, [%rd33]; {sum_up}'), whole
    if name == 'st':
        words = ' '.join(f'ld.global.{plain} {register(plain, 10 + i)}, [%rd25+{size * i}]; ' +
                         ('' if kind[0] != 'f' else from_word.format(r=registers[i], w=register(plain, 10 + i)))
                         for i in range(count))
        place = {'shared': '%rd33', 'global': '%rd27', 'generic': '%rd44'}[where]
        back = 'ld.shared' if where != 'global' else 'ld.global'
        at = '%rd33' if where != 'global' else '%rd27'
        if where == 'global' and size * count > 8:  # a result has eight bytes: the operands' own memory
            place = at = '%rd25'
        plain_back = ' '.join(f'{back}.{plain} {register(plain, 10 + i)}, [{at}+{size * i}];' for i in range(count))
        plain_sum = 'mov.u64 %rd9, 0;' + ''.join(
            ' ' + ('mov.b64 %rd30, {r};' if size == 8 else 'cvt.u64.u%d %%rd30, {r};' % max(16, 8 * size)).format(
                r=register(plain, 10 + i)) + ' mul.lo.s64 %rd9, %rd9, 31; add.s64 %rd9, %rd9, %rd30;'
            for i in range(count))
        generic = 'cvta.shared.u64 %rd44, %rd33;' if where == 'generic' else ''
        return kernel(identifier, f'{shared} {generic} {words} {form} [{place}], {listed}; {plain_back} {plain_sum}'), whole
    if name == 'atom':
        # The operands' first word; what was there before and what is there then.
        function = {'or': lambda a, b: a | b, 'add': lambda a, b: a + b, 'and': lambda a, b: a & b}[s[1]]
        value = '%r2' if size == 4 else '%rd2'
        narrow = 'cvt.u32.u64 %r2, %rd2;' if size == 4 else ''
        widen = f'cvt.u64.u32 %rd30, %r10; ld.global.u32 %r11, [%rd25]; cvt.u64.u32 %rd31, %r11;' if size == 4 else \
            'mov.b64 %rd30, %rd10; ld.global.u64 %rd31, [%rd25];'
        target = '%r10' if size == 4 else '%rd10'
        mask = 2 ** (8 * size) - 1
        return kernel(identifier, f'{narrow} {form} {target}, [%rd25], {value}; {widen} mul.lo.s64 %rd30, %rd30, 31; add.s64 %rd9, %rd30, %rd31;'), \
            lambda a, b, c, d: (a & mask) * 31 + (function(a & mask, b & mask) & mask)
    return None


EDGES = [0, 1, 2, 3, 7, 31, 32, 33, 63, 64, 65, 127, 128, 255, 256, 32767, 32768, 65535, 2 ** 31 - 1, 2 ** 31,
         2 ** 32 - 1, 2 ** 32, 2 ** 53 + 1, 2 ** 63 - 1, 2 ** 63, 2 ** 64 - 2, 2 ** 64 - 1]
DOUBLES = [pattern('f64', x) for x in
           (0.0, -0.0, 1.0, -1.0, 0.5, 1.5, 2.5, 1e308, -1e308, 5e-324, -5e-324, 2.0 ** 52, 2.0 ** 53 - 1, 1 / 3,
            2.0 ** -1022, math.inf, -math.inf, math.nan, 1 + 2.0 ** -52, 3.0, 1e-200)]
BRANCHES = ('bra', 'bra.uni', 'ret', 'bar.sync', 'cvta.to.global.u64')  # every kernel here, and the branches' own


def operand_rows(kinds, generator):
    def one(kind):
        if kind[0] == 'f':
            pool = DOUBLES if kind == 'f64' else [0, 0x80000000, 0x3f800000, 0x00000001, 0x7f800000, 0x7f7fffff]
            return generator.choice(pool) if generator.random() < 0.7 else \
                pattern('f64', generator.uniform(-4, 4) * 2.0 ** generator.randint(-40, 40)) if kind == 'f64' else \
                generator.getrandbits(31)
        return generator.choice(EDGES) if generator.random() < 0.7 else generator.getrandbits(64)
    rows = [[one(kind) for kind in kinds] + [generator.choice(EDGES) for _ in range(4 - len(kinds))] for _ in range(640)]
    if all(kind[0] != 'f' for kind in kinds) and len(kinds) == 2:
        rows[:0] = [[a, b, 0, 0] for a in EDGES[::2] for b in EDGES[::2]]
    return rows


def main(work, compiler, objects, forms):
    generator = random.Random(20261124)
    kernels, expected, missing = [], [], []
    for form in sorted(forms):
        if form in BRANCHES:
            continue
        identifier = form.replace('.', '_')
        if form.split('.')[0] in ('ld', 'st', 'atom', 'prefetch'):
            made = memory(form)
            if made is None:
                missing.append(form)
                continue
            text, definition = made
            kinds, result = ['u64'] * 4, 'u64'
            rows = operand_rows(kinds, generator)[:512]
        else:
            made = parts_of(form)
            if made is None:
                missing.append(form)
                continue
            kinds, result, instruction, definition, done = made
            text = operation(identifier, kinds, result, instruction, done)
            rows = operand_rows(kinds, generator)[:1000]
            if form.split('.')[0] in ('div', 'rem') and kinds[1][0] != 'f':
                rows = [r for r in rows if number(kinds[1], r[1]) != 0]
        kernels.append(text)
        wanted = []
        for row in rows:
            value = definition(*(number(k, x) for k, x in zip(kinds, row)))
            wanted.append(pattern(result, value))
        expected.append((form, identifier, kinds, result, rows, wanted))
    # Loops, branches both ways, and registers that live at a barrier.
    kernels.append(kernel('branches', '''
mov.u64 %rd9, 0; mov.u64 %rd31, shared_memory; add.s64 %rd33, %rd31, %rd26; st.shared.u64 [%rd33], %rd1; and.b64 %rd5, %rd2, 15;
bar.sync 0;
$L_again: setp.eq.s64 %p1, %rd5, 0; @%p1 bra $L_done; add.s64 %rd9, %rd9, %rd1; sub.s64 %rd5, %rd5, 1; bra.uni $L_again;
$L_done: and.b64 %rd6, %rd3, 1; setp.ne.s64 %p2, %rd6, 0; @!%p2 bra $L_even; add.s64 %rd9, %rd9, 1000;
$L_even: ld.shared.u64 %rd34, [%rd33]; xor.b64 %rd9, %rd9, %rd34;'''))
    rows = operand_rows(['u64'] * 4, generator)[:512]
    expected.append(('bra, bar.sync', 'branches', ['u64'] * 4, 'u64', rows,
                     [pattern('u64', (a * (b & 15) + 1000 * (c & 1)) ^ a) if (a * (b & 15) + 1000 * (c & 1)) < 2 ** 64 else
                      (a * (b & 15) + 1000 * (c & 1)) % 2 ** 64 ^ a for a, b, c, d in rows]))
    if missing:
        sys.exit('forms_test: no test of: ' + ', '.join(missing))

    os.makedirs(work, exist_ok=True)
    source = os.path.join(work, 'forms.ptx')
    with open(source, 'w') as file:
        file.write('.version 9.0\n.target sm_90\n.address_size 64\n.extern .shared .align 128 .b8 shared_memory[];\n' +
                   ''.join(kernels))
    translated, program = os.path.join(work, 'forms.cpp'), os.path.join(work, 'forms')
    subprocess.run([sys.executable, os.path.join(HERE, 'translate.py'), translated, source], check=True)
    subprocess.run([compiler, '-std=c++20', '-O1', '-w', '-ffp-contract=off', '-I', HERE, translated,
                    os.path.join(HERE, 'forms_main.cpp'), *objects, '-o', program], check=True)
    lines = ''.join(identifier + ''.join(f' {x:x}' for row in rows for x in row) + '\n'
                    for _, identifier, _, _, rows, _ in expected)
    answer = subprocess.run([program], input=lines, capture_output=True, text=True, check=True).stdout.splitlines()
    wrong = 0
    for (form, identifier, kinds, result, rows, wanted), line in zip(expected, answer, strict=True):
        try:
            got = [int(x, 16) & 2 ** bits(result) - 1 for x in line.split()]
        except ValueError:
            print(f'{form}: {line}')
            wrong += 1
            continue
        for row, g, w in zip(rows, got, wanted, strict=True):
            both_nan = result[0] == 'f' and math.isnan(number(result, g)) and math.isnan(number(result, w))
            if g != w and not both_nan:
                print(f'{form}: of {[hex(x) for x in row[:len(kinds)]]} got {g:#x}, expected {w:#x}')
                wrong += 1
                break
    if wrong:
        sys.exit(f'forms_test: {wrong} of {len(expected)} forms are wrong')
    print(f'{len(expected)} forms, {sum(len(e[4]) for e in expected)} results')


if __name__ == '__main__':
    split = sys.argv.index('--')
    used = set()
    for path in sys.argv[split + 1:]:
        used |= set(open(path).read().split())
    main(sys.argv[1], sys.argv[2], sys.argv[3:split], used)
