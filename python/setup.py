"""Builds the extension module with CMake; everything else is in pyproject.toml."""

import os
import pathlib
import re
import shutil
import subprocess
import sys

import pybind11
from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.command.sdist import sdist

HERE = pathlib.Path(__file__).resolve().parent
CPP = HERE / "cpp" if (HERE / "cpp").exists() else HERE.parent


class cmake_build(build_ext):
    def build_extension(self, extension):
        target = pathlib.Path(self.get_ext_fullpath(extension.name)).resolve()
        # CMake's own choice is make, also where only Ninja is installed. A folder cannot change its generator.
        generator = os.environ.get("CMAKE_GENERATOR") or ("Ninja" if shutil.which("ninja") else "")
        work = pathlib.Path(self.build_temp).resolve() / (generator or "default")
        subprocess.run(
            ["cmake", "-S", HERE, "-B", work, *(["-G", generator] if generator else []), "-DCMAKE_BUILD_TYPE=Release",
             "-DCMAKE_CXX_FLAGS_RELEASE=-O2 -DNDEBUG", f"-DPython_EXECUTABLE={sys.executable}",
             f"-Dpybind11_DIR={pybind11.get_cmake_dir()}", f"-DCMAKE_LIBRARY_OUTPUT_DIRECTORY={target.parent}"],
            check=True)
        subprocess.run(["cmake", "--build", work, "--target", "_core", "-j", str(os.cpu_count() or 2)], check=True)


class with_cpp(sdist):
    """A source distribution has the C++ library in it."""

    def make_release_tree(self, base_dir, files):
        super().make_release_tree(base_dir, files)
        base = pathlib.Path(base_dir)
        for source, to in [(HERE / "src", base / "src"), (HERE / "CMakeLists.txt", base),
                           *((CPP / name, base / "cpp" / name) for name in
                             ("CMakeLists.txt", "LICENSE", "cmake", "include", "src", "service"))]:
            if source.is_dir():
                shutil.copytree(source, to, dirs_exist_ok=True)
            else:
                to.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(source, to)


numbers = re.findall(r"#define TENSAFE_VERSION_\w+ (\d+)", (CPP / "include/tensafe/core/version.hpp").read_text())
setup(version=".".join(numbers), license="Apache-2.0", ext_modules=[Extension("tensafe._core", sources=[])],
      cmdclass={"build_ext": cmake_build, "sdist": with_cpp})
