#!/usr/bin/env python3
"""No kernel stores a pair of words by halves: two stores of 8 neighbouring bytes take twice the sector writes of one of 16.

    stores_test.py PTX...     files, or folders of them
"""
import collections
import re
import subprocess
import sys

from translate import kernels_of, ptx_files


def halves(kernel):
    """Pairs of neighbouring stores of 8 bytes, the first at a multiple of 16, in one basic block."""
    found = []
    for _, code in kernel.blocks:
        seen = {}
        for i in code:
            if i.parts[0] == 'st' and [x for x in i.parts[1:] if x != 'global'] in (['u64'], ['f64'], ['b64']):
                base, offset = re.fullmatch(r'\[([%\w]+)(?:\+(-?\d+))?\]', i.operands[0]).groups()
                offset = int(offset or 0)
                for other in (offset - 8, offset + 8):
                    if (base, other) in seen and min(offset, other) % 16 == 0:
                        found.append((seen[base, other], i.text))
                seen[base, offset] = i.text
            elif i.parts[0] not in ('st', 'bra', 'bar', 'ret') and i.operands:
                seen = {key: text for key, text in seen.items() if key[0] not in re.findall(r'%\w+', i.operands[0])}
    return found


def main(places):
    counts = collections.Counter()
    for path in ptx_files(places):
        for kernel in kernels_of(path, r'\bst(\.global)?\.[ufb]64'):
            counts[kernel.name] = max(counts[kernel.name], len(halves(kernel)))
    bad = {name: n for name, n in counts.items() if n}
    names = subprocess.run(['c++filt'], input='\n'.join(bad), capture_output=True, text=True).stdout.splitlines()
    for name, n in zip(names, bad.values()):
        print(f'{n} pairs by halves: {name}')
    print(f'{len(counts)} kernels store single words, {len(bad)} of them pairs by halves')
    return 1 if bad or not counts else 0


if __name__ == '__main__':
    sys.exit(main(sys.argv[1:]))
