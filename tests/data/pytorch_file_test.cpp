#include "data/tensor_file.h"

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

/// A file as before PyTorch 1.6, by default without storages, whose fourth pickle, the object, has these opcodes.
std::string old_file_with(const std::string& opcodes, const std::string& storages = "].") {
  const std::string good = bytes_of("plain.pickles");
  const size_t third = good.find('.', good.find("little_endian"));  // the end of the third pickle
  REQUIRE(third != std::string::npos);
  return good.substr(0, third + 1) + "\x80\x02" + opcodes + ".\x80\x02" + storages;
}

std::string times(int count, const std::string& text) {
  std::string all;
  for (int i = 0; i < count; ++i) {
    all += text;
  }
  return all;
}

/// Opcodes for a tensor in storage "0", and that storage.
std::string tensor(const std::string& type, char count, const std::string& offset_sizes_strides,
                   const std::string& about = "") {
  return "ctorch._utils\n_rebuild_tensor_v2\n((U\x07storagectorch\n" + type + "\nU\x01" + "0U\x03" + "cpuK" + count +
         "tQ" + offset_sizes_strides + "\x89}" + about + "tR";
}
std::string storage(char count, const std::string& bytes) {
  return std::string("]U\x01") + "0a." + count + std::string(7, '\0') + bytes;
}

}  // namespace

TEST_CASE("pytorch files: archives and pickles hold the tensors that torch.save() was given") {
  const TemporaryFolder folder;
  for (const std::string name : {"plain", "views", "dtypes", "training", "tensors", "others", "first"}) {
    for (const std::string format : {"zip", "pickles", "protocol4"}) {
      CAPTURE(name);
      CAPTURE(format);
      if (name == "first" && format == "protocol4") {
        continue;  // of 2018
      }
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

TEST_CASE("pytorch files: what is no tensor, dict, list, number or text is left out by its name") {
  const TemporaryFolder folder;
  const std::set<std::string> expected = {"args (argparse.Namespace)",
                                          "array (numpy._core.multiarray._reconstruct)",
                                          "best (numpy._core.multiarray.scalar)",
                                          "path (pathlib.PurePosixPath)",
                                          "dtype (torch.float16)",
                                          "device (torch.device)",
                                          "layout (torch.serialization._get_layout)",
                                          "complex (torch.ComplexFloatStorage)",
                                          "float8 (torch.float8_e4m3fn)",
                                          "u16 (torch.uint16)",
                                          "… (of the key a tuple of 2)",
                                          "scheduler (torch.optim.lr_scheduler.LinearLR)"};
  const std::set<std::string> of_protocol2 = {"names (__builtin__.set)", "frozen (__builtin__.frozenset)",
                                              "raw (_codecs.encode)", "many (__builtin__.bytearray)",
                                              "z (__builtin__.complex)"};
  const std::set<std::string> of_protocol4 = {"names (set)", "frozen (frozenset)", "raw (bytes)",
                                              "many (builtins.bytearray)", "z (builtins.complex)"};
  for (const std::string format : {"zip", "pickles", "protocol4"}) {
    CAPTURE(format);
    write_file(folder / "x.pth", bytes_of("others." + format));
    const Safetensors found = load_pytorch_file(folder / "x.pth");
    std::set<std::string> all = format == "protocol4" ? of_protocol4 : of_protocol2;
    all.insert(expected.begin(), expected.end());
    CHECK(std::set<std::string>(found.left_out.begin(), found.left_out.end()) == all);
    for (const std::string& text : found.left_out) {
      CHECK_MESSAGE(all.contains(text), text);
    }
    CHECK(found.metadata ==
          std::map<std::string, std::string>{{"count.a", "1"}, {"default.a.0", "2"}, {"size.0", "2"}, {"size.1", "3"}});
  }
}

TEST_CASE("pytorch files: of a whole module and a TorchScript program it says how to get weights out of it") {
  const TemporaryFolder folder;
  for (const std::string format : {".zip", ".pickles"}) {
    CHECK(error_with(folder, bytes_of("bad.module" + format)) ==
          "pytorch file: FILE: expected tensors by name, got a whole torch.nn.modules.linear.Linear; with the program "
          "that made it, in Python: torch.save(torch.load(FILE, weights_only=False).state_dict(), 'weights.pth')");
  }
  CHECK(error_with(folder, bytes_of("bad.script.zip")) ==
        "pytorch file: FILE: expected tensors by name, got a TorchScript program; in Python: "
        "torch.save(torch.jit.load(FILE).state_dict(), 'weights.pth')");
}

TEST_CASE("pytorch files: of all opcodes only those of plain values are taken") {
  const TemporaryFolder folder;
  const std::string taken =
      "(.01NJKMG\x88\x89\x8A\x8B"
      "X\x8C\x8DTUCB\x8E\x96)t\x85\x86\x87]ae}su\x8F\x90\x91qr\x94hjc\x93R\x81\x92"
      "bQ\x95";
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
  // A call of the system's shell, as an attacker writes it, is a value that is left out.
  for (const char* const call : {"cposix\nsystem\nU\x04"
                                 "echo\x85R",
                                 "U\x05posixU\x06system\x93)R"}) {
    write_file(folder / "x.pth", old_file_with("}U\x01x" + std::string(call) + "s"));
    CHECK(load_pytorch_file(folder / "x.pth").left_out == std::vector<std::string>{"x (posix.system)"});
  }
}

TEST_CASE("pytorch files: damaged ones are refused with one line") {
  const TemporaryFolder folder;
  for (const std::string format : {"plain.zip", "plain.pickles", "others.zip", "others.protocol4", "tensors.pickles"}) {
    const std::string good = bytes_of(format);
    const size_t step = format.starts_with("plain") ? 1 : 17;
    for (size_t length = 0; length < good.size(); length += 3 * step) {
      const std::string error = error_with(folder, good.substr(0, length));
      CAPTURE(length);
      CHECK(error.starts_with("pytorch file: "));
      CHECK(error.find('\n') == std::string::npos);
    }
    for (size_t at = 0; at < good.size(); at += step) {  // a wrong byte is found, or is one of a name or a number
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
  const std::string limit = "pytorch file: FILE: expected at most 32 dicts and lists in each other, and 5000";
  CHECK(error_with(folder, old_file_with("]q\x01h\x01"
                                         "a"))
            .starts_with(limit));
  std::string twice = "]q\x01";
  for (int i = 0; i < 60; ++i) {
    twice +=
        "0]h\x01"
        "ah\x01"
        "aq\x01";
  }
  CHECK(error_with(folder, old_file_with(twice)).starts_with(limit));
}

TEST_CASE("pytorch files: a small one that stands for very much is refused") {
  const TemporaryFolder folder;
  const auto error = [&](const std::string& opcodes, const std::string& storages = "].") {
    return error_with(folder, old_file_with(opcodes, storages));
  };
  const std::string of = "pytorch file: FILE: ";
  CHECK(error(times(300'000, "(1") + "}") == of + "expected a pickle of at most 537509 opcodes, got more");
  // One list for many ordered dicts, one tuple for many sizes, and one dict for many counters.
  const std::string pairs = "]q\x01(K\x01K\x02\x86q\x02" + times(100'000, "h\x02") + "e\x85q\x03" + "0";
  const std::string too_many = of + "expected at most 32 dicts and lists in each other, and 51";
  CHECK(
      error(pairs + "ccollections\nOrderedDict\nq\x04" + "0" + times(110, "h\x04h\x03R0") + "}").starts_with(too_many));
  const std::string items = "}(" + times(100'000, "K\x01K\x02") + "u\x85q\x03" + "0";
  CHECK(error(items + "ccollections\nCounter\nq\x04" + "0" + times(110, "h\x04h\x03R0") + "}").find(" values") !=
        std::string::npos);
  // Sizes of more axes than a tensor has are a value like others.
  CHECK(error("}U\x01xctorch\nSize\n(" + times(9, "K\x01") + "t\x85Rs") == "no error");
  // A text of 2^20 bytes as a name before others, as a value, and as a part of a longer name.
  const std::string text = "X" + std::string("\0\0\x10\0", 4) + std::string(1 << 20, 'x');
  const std::string many = of + "expected names and texts of at most 2 MiB, got more";
  CHECK(error("}" + text + "](" + times(65, "K\x01") + "es") == many);
  CHECK(error(text + "q\x01" + "0](" + times(65, "h\x01") + "e") == many);
  CHECK(error(text + "q\x01" + "h\x01\x93").starts_with(of + "damaged pickle: a name that is too long at byte "));
  CHECK(error("(U\x07storagectorch\nFloatStorage\n" + text + "U\x03" + "cpuK\x01tQ")
            .starts_with(of + "damaged: the storage 'xxx"));
  // One storage of 400 bytes for 100 tensors takes no memory of its own, but as one number a million times it does.
  const std::string zero = "K" + std::string(1, '\0');
  CHECK(error("](" + tensor("FloatStorage", 100, zero + "K\x64\x85K\x01\x85") + "q\x01" + times(99, "h\x01") + "e",
              storage(100, std::string(400, '\0'))) == "no error");
  CHECK(error(tensor("FloatStorage", 1, zero + "J" + std::string("\0\0\x10\0", 4) + "\x85" + zero + "\x85"),
              storage(1, std::string(4, '\0'))) ==
        of + "expected tensors of hardly more bytes than the file's, got more than 1 MiB");
}

TEST_CASE("pytorch files: what several names share is not copied for each") {
  const TemporaryFolder folder;
  const std::string zero = "K" + std::string(1, '\0');
  const std::string parameter = "ctorch._utils\n_rebuild_parameter\n";
  // A tensor listed twice, and once more as a parameter made of it.
  write_file(folder / "x.pth", old_file_with("]" + tensor("FloatStorage", 2, zero + "K\x02\x85K\x01\x85") + "q\x01" +
                                                 "ah\x01" + "a" + parameter + "h\x01\x88}\x87Ra",
                                             storage(2, "abcdefgh")));
  const Safetensors shared = load_pytorch_file(folder / "x.pth");
  REQUIRE(shared.tensors.size() == 3);
  for (const auto& [name, x] : shared.tensors) {
    CHECK(x.raw_data() == shared.tensors[0].second.raw_data());
  }
  // A text is no tensor that a parameter, or a module outside the pickle, could be.
  const std::string text = "X" + std::string("\0\0\x04\0", 4) + std::string(1 << 18, 'x') + "q\x01" + "0";
  for (const std::string& made : {parameter + "h\x01\x88}\x87R", std::string("(U\x06moduleh\x01tQ")}) {
    const std::string error = error_with(folder, old_file_with(text + "](" + times(3, made) + "e"));
    CAPTURE(error);
    if (made.ends_with("R")) {
      CHECK(error == "no error");
      CHECK(load_pytorch_file(folder / "x.pth").left_out ==
            std::vector<std::string>{"0 (torch._utils._rebuild_parameter)", "1 (torch._utils._rebuild_parameter)",
                                     "2 (torch._utils._rebuild_parameter)"});
    } else {
      CHECK(error ==
            "pytorch file: FILE: expected tensors, got an object outside the pickle that is no tensor's storage");
    }
  }
}

TEST_CASE("pytorch files: an archive that is compressed is refused where it is larger than the file") {
  const TemporaryFolder folder;
  // {"x": torch.zeros(1 << 18)}
  const std::string error = error_with(folder, bytes_of("bad.compressed.zip"));
  CAPTURE(error);
  CHECK(error.starts_with("pytorch file: FILE: archive/data/0: expected at most "));
}

TEST_CASE("pytorch files: tensors without elements lie anywhere, and those that stand for other numbers are refused") {
  const TemporaryFolder folder;
  const std::string zero = "K" + std::string(1, '\0');
  const std::string most = std::string("\x8A\x08") + std::string(7, '\xFF') + "\x7F";
  const std::string none = std::string(4, '\0');
  const std::string one_of_one = zero + "K\x01\x85K\x01\x85";
  const auto error = [&](const std::string& opcodes, const std::string& bytes) {
    return error_with(folder, old_file_with(opcodes, storage(1, bytes)));
  };
  CHECK(error(tensor("FloatStorage", 1, one_of_one), none) == "no error");
  CHECK(error(tensor("FloatStorage", 1, most + zero + "\x85K\x01\x85"), none) == "no error");
  CHECK(error(tensor("FloatStorage", 1, zero + zero + most + "\x86" + most + most + "\x86"), none) == "no error");
  write_file(folder / "x.pth", old_file_with("}U\x01x" + tensor("FloatStorage", 1, one_of_one, "}U\x03neg\x88s") + "s",
                                             storage(1, none)));
  CHECK(load_pytorch_file(folder / "x.pth").left_out == std::vector<std::string>{"x (a tensor with 'neg')"});
  CHECK(error(tensor("BoolStorage", 1, one_of_one), "\x01") == "no error");
  CHECK(error(tensor("BoolStorage", 1, one_of_one), "\x02") ==
        "pytorch file: FILE: damaged: storage '0': expected 0 or 1 in every byte of a BoolStorage");
}
