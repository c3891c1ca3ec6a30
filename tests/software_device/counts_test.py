#!/usr/bin/env python3
"""Passes of the NTT write each sector once: of N words of a limb N / 4, each request of a warp as few as hold its bytes.

    counts_test.py NTT_TESTS FILE     the program, and where it writes what it counts
"""
import json
import os
import re
import subprocess
import sys


def main(program, file):
    subprocess.run([program, 'two_pass>(where, launches', 'single_block>(where, launches'], check=True,
                   stdout=subprocess.DEVNULL, env={**os.environ, 'SOFTWARE_DEVICE_COUNTS': file})
    passes = wrong = 0
    for row in map(json.loads, open(file)):
        if match := re.search(r'(forward|inverse)_pass<.*?tile<\d+, \d+, (\d+)', row['kernel']):
            passes += 1
            expected = row['blocks'] * 2 ** int(match.group(2)) * 8 // 32
            if row['store sectors'] != expected:
                print(f'{row["kernel"]}, grid {row["grid"]}: wrote {row["store sectors"]} sectors, expected {expected}')
                wrong += 1
    print(f'{passes} passes, {wrong} with more sectors than they fill')
    return 1 if wrong or passes < 6 else 0


if __name__ == '__main__':
    sys.exit(main(*sys.argv[1:]))
