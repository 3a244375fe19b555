#include "data/tensor_file.h"

#include "core/copy.h"
#include "core/factory.h"
#include "files.h"
#include "support.h"

#include <cstdint>
#include <string>
#include <vector>

using namespace norma;
using namespace norma::data;
using norma::test::error_of;
using norma::test::Layout;
using norma::test::max_difference;
using norma::test::read_file;
using norma::test::TemporaryFolder;
using norma::test::write_file;

namespace {

/// A file with this header, in version 1 of the format, and these bytes behind it.
std::string npy_with(const std::string& header, const std::string& data = std::string(24, '\0')) {
  const auto length = static_cast<uint16_t>(header.size());
  std::string bytes("\x93NUMPY\x01\x00", 8);
  bytes += static_cast<char>(length & 0xFFU);
  bytes += static_cast<char>(length >> 8U);
  return bytes + header + data;
}

std::string npy_error(const std::string& bytes) {
  return error_of([&] { (void)tensor_of_npy("x.npy", bytes); });
}

}  // namespace

TEST_CASE("npy: every dtype comes back as it was, in every layout") {
  for (const DType dtype :
       {DType::float32, DType::float64, DType::float16, DType::int64, DType::int32, DType::uint8, DType::boolean}) {
    for (const Layout layout : norma::test::kLayouts) {
      const Tensor x = copy_of(in_layout(randint(0, 200, {2, 3, 5, 4}), layout), MemoryFormat::preserve, dtype);
      const std::string bytes = npy_bytes(x);
      CHECK((bytes.size() - 120 * size_of(dtype)) % 64 == 0);  // as NumPy aligns the elements
      const Tensor back = tensor_of_npy("x.npy", bytes);
      CHECK(back.dtype() == dtype);
      CHECK(back.sizes() == x.sizes());
      CHECK(back.is_contiguous());
      CHECK(max_difference(back, x) == 0);
    }
  }
  for (const Sizes& sizes : {Sizes{}, Sizes{0}, Sizes{3, 0, 2}, Sizes{1, 1, 1, 1, 1, 1, 1, 1}}) {
    CHECK(tensor_of_npy("x.npy", npy_bytes(zeros(sizes))).sizes() == sizes);
  }
  CHECK(error_of([] { (void)npy_bytes(zeros({2}, {.dtype = DType::bfloat16})); }) ==
        "npy: expected a dtype that NumPy has, got bfloat16");
}

TEST_CASE("npy: what NumPy writes is read") {
  // numpy.save(file, numpy.arange(6, dtype="<i4").reshape(2, 3, order="F"))
  std::string data(24, '\0');
  for (size_t i = 0; i < 6; ++i) {
    data[4 * i] = static_cast<char>(i);
  }
  const Tensor x =
      tensor_of_npy("x.npy", npy_with("{'descr': '<i4', 'fortran_order': True, 'shape': (2, 3), }  \n", data));
  CHECK(x.strides() == Strides{1, 2});
  CHECK(x.to_vector<int64_t>() == std::vector<int64_t>{0, 2, 4, 1, 3, 5});
}

TEST_CASE("npy: damaged files are refused") {
  const std::string good = "{'descr': '<i4', 'fortran_order': False, 'shape': (6,), }";
  CHECK(tensor_of_npy("x.npy", npy_with(good)).sizes() == Sizes{6});
  CHECK(npy_error("") == "npy: x.npy: expected a file of NumPy, got another");
  CHECK(npy_error(npy_with(good).replace(6, 1, "\x04")) == "npy: x.npy: expected version 1, 2 or 3, got 4");
  CHECK(npy_error(npy_with(good).substr(0, 40)) == "npy: x.npy: expected a header of 57 bytes, got 30");
  CHECK(npy_error(npy_with(good, "abc")) == "npy: x.npy: expected 24 bytes of elements, got 3");
  const auto expected = [&](const std::string& header, const std::string& text) {
    CHECK(npy_error(npy_with(header)) == "npy: x.npy: header: expected " + text + ", got " + header);
  };
  expected("{'descr': '>i4', 'fortran_order': False, 'shape': (6,), }",
           "descr '<f4', '<f8', '<f2', '<i8', '<i4', '|u1' or '|b1'");
  expected("{'descr': '<i4', 'fortran_order': 0, 'shape': (6,), }", "fortran_order True or False");
  expected("{'descr': '<i4', 'fortran_order': False, 'shape': (-6,), }", "a shape of whole numbers");
  expected("{'descr': '<i4', 'fortran_order': False, 'shape': (1,1,1,1,1,1,1,1,6), }", "at most 8 axes");
  expected("{'descr': '<i4', 'descr': '<i4', 'shape': (6,), }", "descr, fortran_order and shape, and nothing else");
  expected("{'descr': '<i4', 'shape': (6,), }", "descr, fortran_order and shape, and nothing else");
  expected(good + " more", "descr, fortran_order and shape, and nothing else");
  CHECK(npy_error(npy_with("{'descr': '<i4', 'fortran_order': False, 'shape': (9223372036854775807, 4), }"))
            .find("9223372036854775807") != std::string::npos);
  const std::string booleans = "{'descr': '|b1', 'fortran_order': False, 'shape': (3,), }";
  CHECK(tensor_of_npy("x.npy", npy_with(booleans, std::string("\1\0\1", 3))).to_vector<int>() ==
        std::vector<int>{1, 0, 1});
  CHECK(npy_error(npy_with(booleans, std::string("\1\0\2", 3))) ==
        "npy: x.npy: expected 0 or 1 in every byte of a bool");
}

TEST_CASE("tensor files: .npz and .safetensors hold the same tensors and texts") {
  const TemporaryFolder folder;
  const NamedTensors tensors{{"input", norma::test::random_tensor({2, 3, 4, 5}, 1)},
                             {"grad.layer1.0.weight", norma::test::random_tensor({7}, 2)},
                             {"empty", zeros({0, 2})}};
  for (const char* const name : {"x.npz", "x.safetensors"}) {
    CAPTURE(name);
    write_tensor_file(folder / name, tensors, {{"key", "a \"text\" with ümlaut"}});
    const Safetensors back = read_tensor_file(folder / name);
    REQUIRE(back.tensors.size() == 3);
    for (const auto& [tensor, x] : tensors) {
      CHECK(max_difference(back.find(tensor), x) == 0);
    }
    CHECK(back.metadata.at("key") == "a \"text\" with ümlaut");
  }
  write_tensor_file(folder / "x.npy", {tensors[0]});
  CHECK(max_difference(read_tensor_file(folder / "x.npy").find("input"), tensors[0].second) == 0);
  CHECK(error_of([&] { write_tensor_file(folder / "y.npy", tensors); }) ==
        "npy: " + (folder / "y.npy").string() + ": expected one tensor, got 3; a .npz file holds several");
}

TEST_CASE("npz: damaged archives are refused, and memory grows with what is there") {
  const TemporaryFolder folder;
  const std::string file = (folder / "x.npz").string();
  write_tensor_file(file, {{"input", ones({100})}});
  const std::string good = read_file(file);
  write_file(folder / "x.npz", "no archive");
  CHECK(error_of([&] {
          read_tensor_file(file);
        }).starts_with("npz: " + file + ": expected a zip archive of .npy files: "));
  for (size_t length = 0; length < good.size(); length += 7) {  // cut anywhere
    write_file(folder / "x.npz", good.substr(0, length));
    CHECK(error_of([&] { read_tensor_file(file); }).starts_with("npz: "));
  }
  for (size_t at = 0; at < good.size(); at += 3) {  // a wrong byte is found, or changes nothing but a date or a name
    std::string damaged = good;
    damaged[at] = static_cast<char>(damaged[at] ^ 0x55);
    write_file(folder / "x.npz", damaged);
    const std::string error = error_of([&] { read_tensor_file(file); });
    CAPTURE(error);
    CHECK((error == "no error" || error.starts_with("npz: ") || error.starts_with("npy: ")));
  }
  // A name is anybody's text, and an error is one line.
  CHECK(error_of([&] {
          write_tensor_file(file, {{"a\xff", ones({100})}});
        }) == "npz: " + file + ": tensor 'a?': Invalid argument");
  write_tensor_file(file, {{"a\nb", ones({100})}});
  std::string changed = read_file(file);
  changed[changed.find("NUMPY") + 200] ^= 1;
  write_file(folder / "x.npz", changed);
  CHECK(error_of([&] { read_tensor_file(file); }) == "npz: " + file + ": a?b.npy: CRC error");
}
