"""Conan 2 recipe. It builds the checkout that it lies in: conan create packaging/conan"""
import os

from conan import ConanFile
from conan.errors import ConanInvalidConfiguration
from conan.tools.build import check_min_cppstd
from conan.tools.cmake import CMake, CMakeDeps, CMakeToolchain, cmake_layout
from conan.tools.files import copy


class HierlockConan(ConanFile):
    name = "hierlock"
    version = "0.1.0"
    description = "Hierarchical, named and counted locks for C++20: in a process, between processes, and between machines"
    license = "Apache-2.0"
    topics = ("lock", "mutex", "distributed-lock", "mysql", "valkey")
    settings = "os", "compiler", "build_type", "arch"
    package_type = "static-library"
    options = {"mysql": [True, False], "valkey": [True, False]}
    default_options = {"mysql": False, "valkey": False}

    def export_sources(self):
        root = os.path.join(self.recipe_folder, "..", "..")
        for pattern in ("CMakeLists.txt", "LICENSE", "README.md", "CHANGELOG.md", "cmake/*", "include/*", "src/*", "docs/*",
                        "packaging/systemd/*", "scenarios/*"):
            copy(self, pattern, root, self.export_sources_folder)

    def validate(self):
        check_min_cppstd(self, 20)
        if self.settings.os != "Linux":
            raise ConanInvalidConfiguration("hierlock needs Linux")

    def layout(self):
        cmake_layout(self)

    def requirements(self):
        if self.options.mysql:
            self.requires("mariadb-connector-c/3.3.3")
        if self.options.valkey:
            self.requires("hiredis/1.2.0")
            self.requires("openssl/[>=3 <4]")

    def generate(self):
        toolchain = CMakeToolchain(self)
        for store in ("mysql", "valkey"):
            toolchain.cache_variables[f"HIERLOCK_{store.upper()}"] = "ON" if self.options.get_safe(store) else "OFF"
        for part in ("BUILD_CLI", "LAB", "ROWS_SOCI", "BUILD_TESTS", "BUILD_BENCH", "BUILD_EXAMPLES"):
            toolchain.cache_variables[f"HIERLOCK_{part}"] = "OFF"
        toolchain.generate()
        CMakeDeps(self).generate()

    def build(self):
        cmake = CMake(self)
        cmake.configure()
        cmake.build()

    def package(self):
        CMake(self).install()
        copy(self, "LICENSE", self.source_folder, os.path.join(self.package_folder, "licenses"))

    def package_info(self):
        # The project's own hierlockConfig.cmake knows the components and what they need.
        self.cpp_info.set_property("cmake_find_mode", "none")
        self.cpp_info.builddirs = [os.path.join("lib", "cmake", "hierlock")]
