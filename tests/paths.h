#pragma once

#include <filesystem>
#include <string>

namespace norma::test {

/// The root of this tree, for tests that read kept files.
std::filesystem::path source_folder();

/// The norma command that this build made; empty where it made none.
std::string norma_program();

/// Where this build puts plug-ins.
std::filesystem::path plugin_folder();

}  // namespace norma::test
