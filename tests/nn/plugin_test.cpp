#include "nn/plugin.h"

#include "base/sha256.h"
#include "error_text.h"
#include "files.h"

#include <dlfcn.h>
#include <zlib.h>

#include <fstream>

using namespace norma;
using namespace norma::nn;
using test::error_of;
using test::read_file;
using test::TemporaryFolder;

TEST_CASE("plugin: what is loaded are the bytes that were read, whatever stands under the name by then") {
  const TemporaryFolder folder;
  Dl_info zlib{};
  REQUIRE(::zlibVersion() != nullptr);  // so that it is linked
  REQUIRE(::dladdr(::dlsym(RTLD_DEFAULT, "zlibVersion"), &zlib) != 0);
  const auto file = folder / "library.so";
  std::filesystem::copy_file(zlib.dli_fname, file);  // a library that is no plug-in of ours
  const std::string bytes = read_file(file);
  const PluginFile library(file);
  test::write_file(file, "the same file, written again");  // in place, where a mapped file would change or end
  CHECK(library.record().sha256 == sha256(bytes));
  CHECK(read_file(library.sealed_path()) == bytes);
  std::ofstream writer(library.sealed_path(), std::ios::binary | std::ios::in);
  CHECK_FALSE((writer << "x" << std::flush).good());
  CHECK(error_of([&] { load_plugin(library); }) ==
        "plugin: " + file.string() + ": expected a plug-in of Norma, with NORMA_PLUGIN in one of its files");
  CHECK(error_of([&] { load_plugin(file); }) ==
        "plugin: " + file.string() + ": expected a shared library, got another file");
}
