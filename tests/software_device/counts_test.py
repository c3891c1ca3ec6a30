#!/usr/bin/env python3
"""Kernels touch no more of device memory than they need. Of N words of a limb passes of the NTT write N / 4 sectors; the
whole limb in one block reads each factor about once; 32 doubles of slot kernels are 8 sectors.

Some blocks of a launch, scaled, count what all do.

    counts_test.py NTT_TESTS ENCODING_TESTS PTX FILE     the programs, the second one's PTX, where they write
"""
import glob
import json
import os
import pathlib
import re
import subprocess
import sys


def counted(file, program, *checks, **more):
    pathlib.Path(file).unlink(missing_ok=True)
    result = subprocess.run([program, *checks], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                            env={**os.environ, 'SOFTWARE_DEVICE_COUNTS': file, **more})
    if result.returncode != 0 and not more:  # a model computes nothing that is right
        sys.exit(f'{program} {checks}: failed')
    return list(map(json.loads, open(file)))


def main(ntt, encoding, ptx, file):
    found = {}
    wrong = 0

    def check(kind, row, what, value, most):
        nonlocal wrong
        found[kind] = found.get(kind, 0) + 1
        if value > most:
            print(f'{row["kernel"]}, grid {row["grid"]}: {what}: {value}, expected at most {most}')
            wrong += 1

    for row in counted(file, ntt, 'two_pass>(where, launches', 'single_block>(where, launches'):
        if match := re.search(r'(forward|inverse)_pass<.*?tile<(\d+), \d+, (\d+)', row['kernel']):
            tile = 2 ** int(match.group(3))
            check('passes', row, 'sectors written', row['store sectors'], row['blocks'] * tile / 4)
            if match.group(2) == match.group(3) == '14':
                # Two limbs with factors of one word, two of two: 1.5 N words of factors a limb, and what all threads read.
                check('whole limbs', row, 'sectors read', row['load sectors'], row['blocks'] * tile / 4 * 2.7)
    slots = counted(file, encoding, 'check_slots<15>')
    for row in slots:
        if 'to_slots_kernel<14>' in row['kernel']:
            check('slots', row, 'sectors of all loads', row['load sectors'], 8.5 * row['load requests'])
        if 'to_coefficients_kernel<14' in row['kernel']:
            check('slots', row, 'sectors of all stores', row['store sectors'], 8 * row['store requests'])
    names = {name for f in glob.glob(f'{ptx}/*.ptx') for name in re.findall(r'\.entry (\w+)', open(f).read())}
    with open(f'{file}.resources', 'w') as resources:
        resources.writelines(f'{name} 64 1000\n' for name in names)
    scaled = counted(file, encoding, 'check_slots<15>', SOFTWARE_DEVICE_MODEL='H200', SOFTWARE_DEVICE_RESOURCES=f'{file}.resources')
    for all_blocks, some in zip(slots, scaled, strict=True):
        check('sampled', some, 'counts that differ', [w for w in some if some[w] != all_blocks[w] and w != 'launch sectors'], [])
    print(found, f'{wrong} wrong')
    return 1 if wrong or found.get('passes', 0) < 6 or found.get('whole limbs') != 2 or found.get('slots') != 2 or found.get('sampled', 0) < 4 else 0


if __name__ == '__main__':
    sys.exit(main(*sys.argv[1:]))
