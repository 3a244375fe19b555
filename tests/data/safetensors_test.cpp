#include "data/safetensors.h"

#include "base/excerpt.h"
#include "file_size_limit.h"
#include "files.h"
#include "support.h"

#include <bit>
#include <cstring>
#include <limits>

using namespace norma;
using namespace norma::data;
using norma::test::BadFile;
using norma::test::check_bad_files;
using norma::test::error_of;
using norma::test::Layout;
using norma::test::max_difference;
using norma::test::read_file;
using norma::test::TemporaryFolder;
using norma::test::write_file;

namespace {

/// A file with this header and `data_bytes` bytes 0, 1, 2, … of data.
std::string file_with(const std::string& header, size_t data_bytes) {
  const uint64_t length = header.size();
  std::string bytes(sizeof(length), '\0');
  std::memcpy(bytes.data(), &length, sizeof(length));
  bytes += header;
  for (size_t i = 0; i < data_bytes; ++i) {
    bytes.push_back(static_cast<char>(i));
  }
  return bytes;
}

std::string entry(const std::string& name, const std::string& dtype, const std::string& shape, int begin, int end) {
  return fmt::format(R"("{}":{{"dtype":"{}","shape":{},"data_offsets":[{},{}]}})", name, dtype, shape, begin, end);
}

}  // namespace

TEST_CASE("safetensors: tensors of another device are written, and read to the CPU") {
  const TemporaryFolder folder;
  const Tensor x = in_layout(to_device(norma::test::random_tensor({2, 3, 4, 5}, 1), kCudaEmulated), Layout::strided);
  save_safetensors(folder / "x.safetensors", {{"x", x}});
  const DefaultDeviceGuard guard(kCudaEmulated);
  const Tensor read = load_safetensors(folder / "x.safetensors").find("x");
  CHECK(read.device() == kCpu);
  CHECK(max_difference(read, x) == 0);
}

TEST_CASE("safetensors: every dtype comes back as it was, in every layout") {
  const TemporaryFolder folder;
  const Tensor numbers = norma::test::random_tensor({2, 3, 5, 4}, 1);
  const Tensor integers = randint(0, 200, {2, 3, 5, 4});
  for (const DType dtype : {DType::float32, DType::float64, DType::float16, DType::bfloat16, DType::int64, DType::int32,
                            DType::uint8, DType::boolean}) {
    for (const Layout layout : norma::test::kLayouts) {
      CAPTURE(to_string(dtype));
      CAPTURE(to_string(layout));
      const Tensor x = norma::test::in_layout(
          copy_of(is_floating(dtype) ? numbers : integers, MemoryFormat::contiguous, dtype), layout);
      save_safetensors(folder / "file", {{"x", x}});
      const Safetensors loaded = load_safetensors(folder / "file");
      REQUIRE(loaded.tensors.size() == 1);
      const Tensor y = loaded.find("x");
      REQUIRE(y.defined());
      CHECK(y.dtype() == dtype);
      CHECK(y.is_contiguous());
      CHECK(max_difference(x, y) <= 0);
    }
  }
}

TEST_CASE("safetensors: special numbers, scalars, empty tensors and metadata") {
  const TemporaryFolder folder;
  const float nan = std::bit_cast<float>(0x7FC12345U);
  const Tensor special =
      from_vector<float>({nan, INFINITY, -INFINITY, -0.0F, std::numeric_limits<float>::denorm_min()}, {5});
  const std::map<std::string, std::string> metadata = {{"text", "with \"quotes\", a\nline and ümlaut"}, {"empty", ""}};
  save_safetensors(
      folder / "file",
      {{"special", special}, {"scalar", scalar(42, DType::int64)}, {"empty", zeros({0, 3})}, {"", ones({1})}},
      metadata);
  const Safetensors loaded = load_safetensors(folder / "file");
  CHECK(loaded.metadata == metadata);
  CHECK(std::memcmp(loaded.find("special").raw_data(), special.raw_data(), 5 * sizeof(float)) == 0);
  CHECK(loaded.find("scalar").rank() == 0);
  CHECK(loaded.find("scalar").item<int64_t>() == 42);
  CHECK(loaded.find("empty").sizes() == Sizes{0, 3});
  CHECK(loaded.find("").item<float>() == 1.0F);
  CHECK_FALSE(loaded.find("none").defined());
}

TEST_CASE("safetensors: no tensors at all") {
  const TemporaryFolder folder;
  save_safetensors(folder / "file", {});
  CHECK(read_file(folder / "file") == file_with("{}      ", 0));
  CHECK(load_safetensors(folder / "file").tensors.empty());
}

TEST_CASE("safetensors: the bytes of a file, wide dtypes first and the data aligned") {
  const TemporaryFolder folder;
  save_safetensors(folder / "file",
                   {{"u", from_vector<uint8_t>({7}, {1})},
                    {"f", from_vector<float>({1.0F, -2.0F}, {2, 1})},
                    {"l", from_vector<int64_t>({3}, {})}},
                   {{"k", "v"}});
  const std::string header =
      R"({"__metadata__":{"k":"v"},"l":{"dtype":"I64","shape":[],"data_offsets":[0,8]},)"
      R"("f":{"dtype":"F32","shape":[2,1],"data_offsets":[8,16]},"u":{"dtype":"U8","shape":[1],"data_offsets":[16,17]}})";
  const std::string bytes = read_file(folder / "file");
  const size_t padded = (header.size() + 7) / 8 * 8;
  REQUIRE(bytes.size() == 8 + padded + 17);
  CHECK(static_cast<unsigned char>(bytes[0]) == padded);
  CHECK(bytes.substr(1, 7) == std::string(7, '\0'));
  CHECK(bytes.substr(8, padded) == header + std::string(padded - header.size(), ' '));
  CHECK(bytes.substr(8 + padded) == std::string("\x03\0\0\0\0\0\0\0\x00\x00\x80\x3F\x00\x00\x00\xC0\x07", 17));
}

TEST_CASE("safetensors: a file of the reference implementation, read and written byte by byte") {
  // safetensors 0.8.0: from safetensors.numpy import save; import numpy as np
  // save({"b": np.array([[1.5, -2.0]], np.float16), "a": np.array([1, -1])}, {"format": "np"})
  const std::string bytes = std::string("\x90\0\0\0\0\0\0\0", 8) +
                            R"({"__metadata__":{"format":"np"},"a":{"dtype":"I64","shape":[2],"data_offsets":[0,16]},)"
                            R"("b":{"dtype":"F16","shape":[1,2],"data_offsets":[16,20]}} )" +
                            std::string("\x01\0\0\0\0\0\0\0\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\0>\0\xC0", 20);
  const TemporaryFolder folder;
  write_file(folder / "file", bytes);
  const Safetensors loaded = load_safetensors(folder / "file");
  CHECK(loaded.metadata == std::map<std::string, std::string>{{"format", "np"}});
  CHECK(loaded.find("a").to_vector<int64_t>() == std::vector<int64_t>{1, -1});
  CHECK(loaded.find("b").dtype() == DType::float16);
  CHECK(loaded.find("b").sizes() == Sizes{1, 2});
  CHECK(loaded.find("b").to_vector<float>() == std::vector<float>{1.5F, -2.0F});
  save_safetensors(folder / "again", loaded.tensors, loaded.metadata);
  CHECK(read_file(folder / "again") == bytes);
}

TEST_CASE("safetensors: the header may list tensors in any order") {
  const TemporaryFolder folder;
  write_file(folder / "file",
             file_with("{" + entry("second", "U8", "[2]", 1, 3) + "," + entry("none", "U8", "[0]", 1, 1) + "," +
                           entry("first", "U8", "[1]", 0, 1) + "}",
                       3));
  const Safetensors loaded = load_safetensors(folder / "file");
  REQUIRE(loaded.tensors.size() == 3);
  CHECK(loaded.tensors[0].first == "first");
  CHECK(loaded.find("second").to_vector<int>() == std::vector<int>{1, 2});
}

TEST_CASE("safetensors: bad files, each with its error") {
  const TemporaryFolder folder;
  const std::string none = (folder / "none").string();
  CHECK(error_of([&] { load_safetensors(none); }) ==
        "safetensors: cannot open " + none + ": No such file or directory");
  CHECK(error_of([&] { load_safetensors(folder.path()); }) ==
        "safetensors: cannot open " + folder.path().string() + ": expected a regular file, got a folder");
  save_safetensors(folder / "whole", {{"x", zeros({100})}});
  const std::string whole = read_file(folder / "whole");
  std::vector<BadFile> bad = {
      {"no bytes", "", "expected a header length of 8 bytes, got a file of 0 bytes"},
      {"shorter than a header length", "1234567", "expected a header length of 8 bytes, got a file of 7 bytes"},
      {"a header length beyond the file", std::string("\x05\0\0\0\0\0\0\0{}  ", 12),
       "the header should have 5 bytes, but only 4 follow"},
      {"a header length beyond reason", std::string(8, '\xFF') + "{}",
       "expected a safetensors file with a header of at most 100000000 bytes, got one of 18446744073709551615"},
      {"cut short", whole.substr(0, whole.size() - 1),
       "tensor 'x': data_offsets: expected a range within the 399 bytes of data, got [0,400]"}};
  // A header with four bytes of data.
  const auto header = [&](const std::string& text, const std::string& error, size_t data_bytes = 4) {
    bad.push_back({excerpt(text), file_with(text, data_bytes), error});
  };
  // A header with tensor x alone.
  const auto x = [&](const std::string& dtype, const std::string& shape, int begin, int end, const std::string& error) {
    header("{" + entry("x", dtype, shape, begin, end) + "}", error);
  };
  // No object.
  header("[]", "expected the header to be a JSON object, got array");
  header("{\"x\":3}", "tensor 'x': expected an object, got number");
  // Metadata that is no map of texts.
  header(R"({"__metadata__":[]})", "expected __metadata__ to be an object, got array");
  header(R"({"__metadata__":{"k":1}})", "__metadata__: expected a text for 'k', got number");
  // A name twice.
  header("{" + entry("x", "U8", "[2]", 0, 2) + "," + entry("x", "U8", "[2]", 2, 4) + "}",
         "the header: 'x': expected each key once, got it again");
  // A missing field.
  header(R"({"x":{"shape":[1],"data_offsets":[0,4]}})", "tensor 'x': dtype is missing");
  header(R"({"x":{"dtype":"F32","data_offsets":[0,4]}})", "tensor 'x': shape is missing");
  header(R"({"x":{"dtype":"F32","shape":[1]}})", "tensor 'x': data_offsets is missing");
  // An unknown dtype.
  x("F7", "[4]", 0, 4,
    "tensor 'x': dtype: expected one of F64, F32, F16, BF16, I64, I32, I16, I8, U8, BOOL, U64, U32, U16, C64, F8_E5M2, "
    "F8_E4M3, F8_E8M0, F6_E2M3, F6_E3M2, F4, got \"F7\"");
  header(R"({"x":{"dtype":1,"shape":[1],"data_offsets":[0,4]}})",
         "tensor 'x': dtype: expected one of F64, F32, F16, BF16, I64, I32, I16, I8, U8, BOOL, U64, U32, U16, C64, "
         "F8_E5M2, "
         "F8_E4M3, F8_E8M0, F6_E2M3, F6_E3M2, F4, got 1");
  // A bad shape.
  x("U8", "4", 0, 4, "tensor 'x': shape: expected a list of sizes, got 4");
  x("U8", "[-4]", 0, 4, "tensor 'x': shape: expected a list of sizes, got [-4]");
  x("U8", "[4.0]", 0, 4, "tensor 'x': shape: expected a list of sizes, got [4.0]");
  x("U8", "[1,1,1,1,1,1,1,1,4]", 0, 4, "tensor 'x': shape: expected at most 8 axes, got 9");
  x("F32", "[4294967296,4294967296]", 0, 4, "tensor 'x': shape: [4294967296,4294967296] is too large");
  x("F32", "[0,4294967296,4294967296]", 0, 0, "tensor 'x': shape: [0,4294967296,4294967296] is too large");
  // Offsets out of range.
  x("U8", "[5]", 0, 5, "tensor 'x': data_offsets: expected a range within the 4 bytes of data, got [0,5]");
  x("U8", "[1]", 3, 2, "tensor 'x': data_offsets: expected a range within the 4 bytes of data, got [3,2]");
  x("U8", "[1]", -1, 0, "tensor 'x': data_offsets: expected [begin, end], got [-1,0]");
  header(R"({"x":{"dtype":"U8","shape":[4],"data_offsets":[0]}})",
         "tensor 'x': data_offsets: expected [begin, end], got [0]");
  // Offsets that do not match dtype and shape.
  x("F32", "[2]", 0, 4, "tensor 'x': expected 8 bytes for dtype F32 and shape [2], got 4");
  // Overlapping tensors.
  header("{" + entry("x", "U8", "[3]", 0, 3) + "," + entry("y", "U8", "[2]", 2, 4) + "}",
         "tensor 'y': its bytes [2, 4) overlap those of 'x'");
  header("{" + entry("x", "U8", "[4]", 0, 4) + "," + entry("y", "U8", "[4]", 0, 4) + "}",
         "tensor 'y': its bytes [0, 4) overlap those of 'x'");
  // Gaps.
  header("{" + entry("x", "U8", "[1]", 0, 1) + "," + entry("y", "U8", "[2]", 2, 4) + "}",
         "tensor 'y': expected its data to begin at byte 1, got 2: a gap");
  x("U8", "[1]", 3, 4, "tensor 'x': expected its data to begin at byte 0, got 3: a gap");
  // More data than the header describes.
  x("U8", "[3]", 0, 3, "expected 3 bytes of data, as the header says, got 4");
  // A BOOL that is neither.
  x("BOOL", "[4]", 0, 4, "tensor 'x': expected 0 or 1 in every byte of a BOOL");
  for (BadFile& file : bad) {
    file.error = "safetensors: FILE: " + file.error;
  }
  check_bad_files(bad, [](const std::filesystem::path& file) { load_safetensors(file); });
}

TEST_CASE("safetensors: numbers that Norma lacks are left out or become wider ones") {
  const TemporaryFolder folder;
  const std::string header = "{" + entry("scale", "F8_E4M3", "[3]", 0, 3) + "," + entry("x", "I8", "[3]", 3, 6) + "," +
                             entry("y", "I16", "[2]", 6, 10) + "," + entry("z", "U8", "[1]", 10, 11) + "," +
                             entry("four", "F4", "[3]", 11, 13) + "}";
  write_file(folder / "file",
             file_with(header, 0) + std::string("\x01\x02\x03\x80\xFF\x7F\x00\x80\xFF\x7F\x07", 11) + "ab");
  const Safetensors content = load_safetensors(folder / "file");
  CHECK(content.left_out == std::vector<std::string>{"scale (F8_E4M3)", "four (F4)"});
  REQUIRE(content.tensors.size() == 3);
  CHECK(content.find("x").dtype() == DType::int32);
  CHECK(content.find("x").to_vector<int32_t>() == std::vector<int32_t>{-128, -1, 127});
  CHECK(content.find("y").to_vector<int32_t>() == std::vector<int32_t>{-32768, 32767});
  CHECK(content.find("z").to_vector<uint8_t>() == std::vector<uint8_t>{7});
}

TEST_CASE("safetensors: headers that are no JSON, nest deeply or hold texts that nobody reads") {
  const TemporaryFolder folder;
  const std::string file = (folder / "file").string();
  const auto header_error = [&](const std::string& header) {
    write_file(file, file_with(header, 4));
    return error_of([&] { load_safetensors(file); });
  };
  const std::string prefix = "safetensors: " + file + ": ";
  SUBCASE("no JSON") {
    CHECK(header_error("{\"x\":") ==
          prefix +
              "the header: not JSON: parse error at line 1, column 6: syntax error while parsing value - unexpected "
              "end of input; expected '[', '{', or a literal");
    CHECK(header_error("").starts_with(prefix + "the header: not JSON: "));
    CHECK(header_error("{\"\xFF\":1}").starts_with(prefix + "the header: not JSON: "));
    CHECK(header_error("{}x").starts_with(prefix + "the header: not JSON: "));
  }
  SUBCASE("lists in lists, wherever they are") {
    const std::string deep = std::string(100000, '[') + std::string(100000, ']');
    const std::string too_deep = prefix + "the header: expected at most 3 objects and lists in each other, got more";
    for (const auto& [field, others] :
         {std::pair<std::string, std::string>{"dtype", R"("shape":[4],"data_offsets":[0,4])"},
          {"shape", R"("dtype":"U8","data_offsets":[0,4])"},
          {"data_offsets", R"("dtype":"U8","shape":[4])"}}) {
      std::string header = "{\"x\":{" + others + ",\"" + field + "\":";
      CHECK(header_error(header + deep + "}}") == too_deep);
      header += (field == "shape" ? "[null]}}" : "[]}}");
      CHECK(header_error(header).starts_with(prefix + "tensor 'x': " + field + ": expected "));
    }
    CHECK(header_error(deep) == too_deep);
    CHECK(header_error(std::string(100000, '[')) == too_deep);
  }
  SUBCASE("texts of a length that nobody reads") {
    const std::string name(1000000, 'x');
    CHECK(header_error("{" + entry(name, "F7", "[4]", 0, 4) + "}").size() < 500);
    CHECK(header_error("{" + entry("x", name, "[4]", 0, 4) + "}").size() < 500);
    std::string many = "[1";
    for (int i = 0; i < 100000; ++i) {
      many += ",1";
    }
    CHECK(header_error("{" + entry("x", "U8", many + "]", 0, 4) + "}") ==
          prefix + "tensor 'x': shape: expected at most 8 axes, got 100001");
    CHECK(header_error("{" + entry("x", "U8", many + ",-1]", 0, 4) + "}") ==
          prefix + "tensor 'x': shape: expected a list of sizes, got a list of 100002 items");
    CHECK(header_error("{" + entry("a\\u001b[31m\\n", "F7", "[4]", 0, 4) + "}")
              .starts_with(prefix + "tensor 'a?[31m?': dtype: "));
  }
}

TEST_CASE("safetensors: every file cut short or with one byte changed gives an Error or tensors, nothing worse") {
  const TemporaryFolder folder;
  const std::string file = (folder / "file").string();
  save_safetensors(file, {{"a", arange(3)}, {"b", ones({2, 2})}}, {{"k", "v"}});
  const std::string bytes = read_file(file);
  int errors = 0;
  for (size_t i = 0; i < bytes.size(); ++i) {
    write_file(file, bytes.substr(0, i));
    CHECK(error_of([&] { load_safetensors(file); }).starts_with("safetensors: "));
    for (const char other : {'\xFF', '9', '"'}) {
      std::string changed = bytes;
      changed[i] = other;
      write_file(file, changed);
      const std::string error = error_of([&] { load_safetensors(file); });
      errors += error.empty() ? 0 : 1;
    }
  }
  CHECK(errors > 100);
}

TEST_CASE("safetensors: bad arguments of save, each with its error, nothing is written") {
  const TemporaryFolder folder;
  const std::string file = (folder / "file").string();
  CHECK(error_of([&] {
          save_safetensors(file, {{"x", ones({1})}, {"x", ones({2})}});
        }) == "safetensors: " + file + ": tensor 'x': the name appears twice");
  CHECK(error_of([&] {
          save_safetensors(file, {{"__metadata__", ones({1})}});
        }) == "safetensors: " + file + ": no tensor can have the name __metadata__");
  CHECK(error_of([&] { save_safetensors(file, {{"x", Tensor()}}); }) == "safetensors: x: expected a tensor, got none");
  CHECK(error_of([&] {
          save_safetensors(file, {{"\xFF", ones({1})}});
        }) == "safetensors: " + file + ": names and metadata must be UTF-8");
  CHECK(folder.names().empty());
}

TEST_CASE("safetensors: places that cannot be written") {
  const TemporaryFolder folder;
  write_file(folder / "plain", "a file");
  const std::string no_folder = (folder / "none").string() + "/file";
  const std::string in_a_file = (folder / "plain").string() + "/file";
  CHECK(error_of([&] {
          save_safetensors(no_folder, {{"x", ones({1})}});
        }) == "safetensors: cannot write " + no_folder + ": No such file or directory");
  CHECK(error_of([&] {
          save_safetensors(in_a_file, {{"x", ones({1})}});
        }) == "safetensors: cannot write " + in_a_file + ": Not a directory");
  // A folder has the name already: found only when the whole file has been written.
  std::filesystem::create_directory(folder / "taken");
  CHECK(error_of([&] {
          save_safetensors(folder / "taken", {{"x", ones({1})}});
        }) == "safetensors: cannot write " + (folder / "taken").string() + ": Is a directory");
  CHECK(folder.names() == std::vector<std::string>{"plain", "taken"});
}

TEST_CASE("safetensors: a disk that fills leaves the old file and no other") {
  const TemporaryFolder folder;
  const std::string file = (folder / "file").string();
  save_safetensors(file, {{"x", ones({10})}});
  const std::string before = read_file(file);

  // A limit on file sizes stands for the full disk: write() then fails in the same way, in part first.
  std::string error;
  {
    const norma::test::FileSizeLimit limit(5000);
    error = error_of([&] { save_safetensors(file, {{"x", zeros({100000})}}); });
  }

  CHECK(error == "safetensors: cannot write " + file + ": File too large");
  CHECK(read_file(file) == before);
  CHECK(folder.names() == std::vector<std::string>{"file"});
}

TEST_CASE("safetensors: a new file replaces the old one as a whole") {
  const TemporaryFolder folder;
  save_safetensors(folder / "file", {{"x", zeros({1000})}});
  save_safetensors(folder / "file", {{"y", ones({2})}});
  const Safetensors loaded = load_safetensors(folder / "file");
  REQUIRE(loaded.tensors.size() == 1);
  CHECK(loaded.tensors[0].first == "y");
  CHECK(folder.names() == std::vector<std::string>{"file"});
}

TEST_CASE("safetensors: the metadata alone") {
  const TemporaryFolder folder;
  save_safetensors(folder / "file", {{"x", ones({2})}}, {{"key", "value"}});
  CHECK(load_safetensors_metadata(folder / "file") == std::map<std::string, std::string>{{"key", "value"}});
  CHECK(error_of([&] { load_safetensors_metadata(folder / "none"); }) ==
        "safetensors: cannot open " + (folder / "none").string() + ": No such file or directory");
}
