#include "data/byte_reader.h"

#include "core/error.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace norma::data {

namespace {

constexpr size_t kInputBytes = size_t{1} << 18;
constexpr uint64_t kMaxFile = uint64_t{8} << 30;
constexpr int kGzipWindow = 15 + 16;  // the largest window; +16 makes zlib expect gzip's header and checksum

}  // namespace

ByteReader::ByteReader(std::string op, std::filesystem::path file)
    : op_(std::move(op)), file_(std::move(file)), source_(op_, file_, kMaxFile) {
  input_.resize(kInputBytes);
  fill_input();
  is_gzip_ = z_.avail_in >= 2 && input_[0] == 0x1F && input_[1] == 0x8B;
  if (is_gzip_) {
    check(inflateInit2(&z_, kGzipWindow) == Z_OK, op_, "no memory to unpack {}", file_.string());
  }
}

ByteReader::~ByteReader() {
  if (is_gzip_) {
    inflateEnd(&z_);
  }
}

size_t ByteReader::fill_input() {
  const size_t count = source_.read(input_.data(), input_.size());
  z_.next_in = input_.data();
  z_.avail_in = static_cast<uInt>(count);
  return count;
}

size_t ByteReader::read(std::span<uint8_t> bytes) {
  return is_gzip_ ? read_gzip(bytes) : read_plain(bytes);
}

size_t ByteReader::read_plain(std::span<uint8_t> bytes) {
  size_t done = 0;
  while (done < bytes.size() && (z_.avail_in > 0 || fill_input() > 0)) {
    const size_t count = std::min<size_t>(z_.avail_in, bytes.size() - done);
    std::memcpy(bytes.data() + done, z_.next_in, count);
    z_.next_in += count;
    z_.avail_in -= static_cast<uInt>(count);
    done += count;
  }
  return done;
}

size_t ByteReader::read_gzip(std::span<uint8_t> bytes) {
  size_t done = 0;
  while (done < bytes.size() && !at_end_) {
    check(z_.avail_in > 0 || fill_input() > 0, op_, "{}: the gzip data ends too early", file_.string());
    const size_t room = std::min<size_t>(bytes.size() - done, size_t{1} << 30);
    z_.next_out = bytes.data() + done;
    z_.avail_out = static_cast<uInt>(room);
    const int result = inflate(&z_, Z_NO_FLUSH);
    done += room - z_.avail_out;
    if (result == Z_STREAM_END) {
      if (z_.avail_in == 0 && fill_input() == 0) {
        at_end_ = true;
      } else {
        // A gzip file may hold several packed parts, one after the other; anything else after a part is an error.
        check(z_.next_in[0] == 0x1F, op_, "{}: unexpected bytes after the gzip data", file_.string());
        inflateReset(&z_);
      }
    } else {
      check(result == Z_OK || result == Z_BUF_ERROR, op_, "{}: corrupt gzip data ({})", file_.string(),
            z_.msg != nullptr ? z_.msg : zError(result));
    }
  }
  return done;
}

}  // namespace norma::data
