"""The headers as a package of Conan 2: conan create packaging"""

import pathlib
import re

from conan import ConanFile
from conan.tools.cmake import CMake, CMakeToolchain
from conan.tools.files import copy


class Tensafe(ConanFile):
    name = "tensafe"
    license = "Apache-2.0"
    description = "Header-only CKKS and NTT toolkit for encrypted LoRA"
    package_type = "header-library"
    settings = "os", "arch", "compiler", "build_type"

    def set_version(self):
        header = pathlib.Path(self.recipe_folder, "../include/tensafe/core/version.hpp").read_text()
        self.version = ".".join(re.findall(r"define TENSAFE_VERSION_[A-Z]+ (\d+)", header))

    def export_sources(self):
        for pattern in ("CMakeLists.txt", "LICENSE", "cmake/*", "include/*"):
            copy(self, pattern, pathlib.Path(self.recipe_folder, ".."), self.export_sources_folder)

    def generate(self):
        toolchain = CMakeToolchain(self)
        for part in ("TESTS", "EXAMPLES", "SERVICE", "BENCHMARKS"):
            toolchain.cache_variables[f"TENSAFE_BUILD_{part}"] = False
        toolchain.generate()

    def package(self):
        cmake = CMake(self)
        cmake.configure()
        cmake.install()

    def package_id(self):
        self.info.clear()

    def package_info(self):
        self.cpp_info.bindirs = self.cpp_info.libdirs = []
        self.cpp_info.set_property("cmake_find_mode", "none")  # the package has its own file, which knows the components
        self.cpp_info.builddirs = ["share/cmake/tensafe"]
