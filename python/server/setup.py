"""Makes a wheel of the programs of the service, which `pip install tensafe[server]` takes; pyproject.toml names them."""

import os
import pathlib
import re
import shutil
import subprocess

from setuptools import Distribution, setup
from setuptools.command.bdist_wheel import bdist_wheel
from distutils.command.build_scripts import build_scripts  # setuptools has put its own there

ROOT = pathlib.Path(__file__).resolve().parents[2]


class programs(build_scripts):
    def run(self):
        work = pathlib.Path(self.get_finalized_command("build").build_temp).resolve()
        # Libraries are linked in, so that the programs run from where pip puts them. Left out are libcurl, for adapters in
        # object storage, which needs thirty others, and hiredis_ssl, which Debian 12 does not have.
        subprocess.run(
            ["cmake", "-G", "Ninja", "-S", ROOT, "-B", work, "-DCMAKE_BUILD_TYPE=Release",
             "-DCMAKE_CXX_FLAGS_RELEASE=-O2 -DNDEBUG -fstack-protector-strong -D_FORTIFY_SOURCE=2",
             "-DCMAKE_EXE_LINKER_FLAGS=-s -Wl,-z,relro,-z,now", "-DTENSAFE_HIREDIS_SSL=OFF",
             "-DOPENSSL_USE_STATIC_LIBS=TRUE", "-DTENSAFE_HIREDIS=-l:libhiredis.a", "-DCMAKE_DISABLE_FIND_PACKAGE_CURL=TRUE",
             *(f"-DTENSAFE_BUILD_{each}=OFF" for each in ("TESTS", "EXAMPLES", "BENCHMARKS"))],
            check=True)
        subprocess.run(["cmake", "--build", work, "--target", "tensafe-server", "tensafe-client",
                        "-j", str(os.cpu_count() or 2)], check=True)
        self.mkpath(self.build_dir)
        for name in self.scripts:
            shutil.copy(work / "service" / name, self.build_dir)


class for_every_python(bdist_wheel):
    def get_tag(self):
        return "py3", "none", super().get_tag()[2]


class with_programs(Distribution):
    def has_ext_modules(self):
        return True


numbers = re.findall(r"#define TENSAFE_VERSION_\w+ (\d+)", (ROOT / "include/tensafe/core/version.hpp").read_text())
setup(version=".".join(numbers), distclass=with_programs,
      cmdclass={"build_scripts": programs, "bdist_wheel": for_every_python})
