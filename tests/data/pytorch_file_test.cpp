#include "data/pytorch_file.h"

#include "data/safetensors.h"
#include "files.h"
#include "paths.h"
#include "support.h"

#include <doctest/doctest.h>

#include <set>
#include <string>

using namespace norma;
using namespace norma::data;
using norma::test::error_of;
using norma::test::TemporaryFolder;
using norma::test::write_file;

namespace {

const Safetensors& reference() {
  static const Safetensors all =
      load_safetensors(test::source_folder() / "tests" / "reference" / "pytorch_files.safetensors");
  return all;
}

std::string bytes_of(const std::string& name) {
  const Tensor x = reference().find(name);
  REQUIRE_MESSAGE(x.defined(), name);
  const auto* const first = reinterpret_cast<const char*>(x.data<uint8_t>());
  return {first, first + x.numel()};
}

/// The error of reading these bytes, without the name of the file.
std::string error_with(const TemporaryFolder& folder, const std::string& bytes) {
  write_file(folder / "x.pth", bytes);
  std::string error = error_of([&] { (void)load_pytorch_file(folder / "x.pth"); });
  const std::string file = (folder / "x.pth").string();
  if (const size_t at = error.find(file); at != std::string::npos) {
    error.replace(at, file.size(), "FILE");
  }
  return error;
}

/// A file as before PyTorch 1.6 without storages, whose fourth pickle, the object, has these opcodes.
std::string old_file_with(const std::string& opcodes) {
  const std::string good = bytes_of("plain.pickles");
  const size_t third = good.find('.', good.find("little_endian"));  // the end of the third pickle
  REQUIRE(third != std::string::npos);
  return good.substr(0, third + 1) + "\x80\x02" + opcodes + ".\x80\x02].";
}

}  // namespace

TEST_CASE("pytorch files: archives and pickles hold the tensors that torch.save() was given") {
  const TemporaryFolder folder;
  for (const std::string name : {"plain", "views", "dtypes", "training"}) {
    for (const std::string format : {"zip", "pickles"}) {
      CAPTURE(name);
      CAPTURE(format);
      write_file(folder / "x.pth", bytes_of(name + "." + format));
      REQUIRE(is_pytorch_file(folder / "x.pth"));
      const Safetensors found = load_pytorch_file(folder / "x.pth");
      const std::string prefix = "expected." + name + ".";
      size_t expected = 0;
      for (const auto& [key, x] : reference().tensors) {
        if (key.starts_with(prefix)) {
          ++expected;
          const Tensor y = found.find(key.substr(prefix.size()));
          CAPTURE(key);
          REQUIRE(y.defined());
          CHECK(y.dtype() == x.dtype());
          REQUIRE(y.sizes() == x.sizes());
          CHECK(std::string_view(static_cast<const char*>(y.raw_data()), y.numel() * size_of(y.dtype())) ==
                std::string_view(static_cast<const char*>(x.raw_data()), x.numel() * size_of(x.dtype())));
        }
      }
      CHECK(found.tensors.size() == expected);
      if (name == "training") {
        CHECK(found.metadata.at("epoch") == "7");
        CHECK(found.metadata.at("arch") == "net");
        CHECK(found.metadata.at("metric") == "1.5");
        CHECK(found.metadata.at("done") == "True");
        CHECK(found.metadata.at("big") == "1099511627776");
        CHECK(found.metadata.at("minus") == "-3");
        CHECK(found.metadata.at("optimizer.param_groups.0.lr") == "0.1");
        CHECK(!found.metadata.contains("amp"));
      }
    }
  }
}

TEST_CASE("pytorch files: what is no tensor, dict, list, number or text is refused by its name") {
  const TemporaryFolder folder;
  const std::string expected = "pytorch file: FILE: expected tensors, dicts, lists, numbers and texts, got ";
  for (const std::string format : {".zip", ".pickles"}) {
    CHECK(error_with(folder, bytes_of("bad.namespace" + format)) == expected + "argparse.Namespace");
    CHECK(error_with(folder, bytes_of("bad.module" + format)) == expected + "torch.nn.modules.linear.Linear");
    CHECK(error_with(folder, bytes_of("bad.complex" + format)) == expected + "torch.ComplexFloatStorage");
    CHECK(error_with(folder, bytes_of("bad.set" + format)) == expected + "__builtin__.set");
    CHECK(error_with(folder, bytes_of("bad.key" + format)) == expected + "a dict with the key a tuple of 2");
    CHECK(error_with(folder, bytes_of("bad.expanded" + format)) ==
          "pytorch file: FILE: damaged: a tensor behind the end of its storage");
  }
}

TEST_CASE("pytorch files: of all opcodes only those of plain values are taken") {
  const TemporaryFolder folder;
  const std::string taken =
      "(.01NJKMG\x88\x89\x8A"
      "X\x8CTU)t\x85\x86\x87]ae}suqr\x94hjc\x93RbQ\x95";
  int refused = 0;
  for (int code = 0; code < 256; ++code) {
    CAPTURE(code);
    const std::string opcode(1, static_cast<char>(code));
    const std::string error = error_with(folder, old_file_with(opcode + std::string(16, '\0')));
    CHECK(error.starts_with("pytorch file: FILE: "));
    const bool is_refused = error.find("got opcode ") != std::string::npos && error.ends_with(" at byte 2");
    CHECK(is_refused == (taken.find(opcode) == std::string::npos));
    refused += is_refused ? 1 : 0;
  }
  CHECK(refused == 256 - static_cast<int>(taken.size()));
  // A call of the system's shell, as an attacker writes it.
  CHECK(error_with(folder, old_file_with("cposix\nsystem\nU\x04"
                                         "echo\x85R")) ==
        "pytorch file: FILE: expected tensors, dicts, lists, numbers and texts, got posix.system");
  CHECK(error_with(folder, old_file_with("U\x05posixU\x06system\x93)R")) ==
        "pytorch file: FILE: expected tensors, dicts, lists, numbers and texts, got posix.system");
}

TEST_CASE("pytorch files: damaged ones are refused with one line") {
  const TemporaryFolder folder;
  for (const std::string format : {".zip", ".pickles"}) {
    const std::string good = bytes_of("plain" + format);
    for (size_t length = 0; length < good.size(); length += 3) {
      const std::string error = error_with(folder, good.substr(0, length));
      CAPTURE(length);
      CHECK(error.starts_with("pytorch file: "));
      CHECK(error.find('\n') == std::string::npos);
    }
    for (size_t at = 0; at < good.size(); ++at) {  // a wrong byte is found, or is one of a name or a number
      std::string damaged = good;
      damaged[at] = static_cast<char>(damaged[at] ^ 0x15);
      const std::string error = error_with(folder, damaged);
      CAPTURE(error);
      CHECK((error == "no error" || error.starts_with("pytorch file: ")));
      CHECK(error.find('\n') == std::string::npos);
    }
  }
  CHECK(error_with(folder, old_file_with("}")) == "no error");
  // A list that holds itself, and dicts that hold each other twice: 2^60 values.
  const std::string limit =
      "pytorch file: FILE: expected at most 32 dicts and lists in each other, and 10000000 values";
  CHECK(error_with(folder, old_file_with("]q\x01h\x01"
                                         "a")) == limit);
  std::string twice = "]q\x01";
  for (int i = 0; i < 60; ++i) {
    twice +=
        "0]h\x01"
        "ah\x01"
        "aq\x01";
  }
  CHECK(error_with(folder, old_file_with(twice)) == limit);
}
