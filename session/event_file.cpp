#include "session/event_file.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cmath>
#include <cstring>
#include <system_error>

namespace norma::train {

namespace {

// The few fields written here, in the wire format of protocol buffers: a field begins with its number and the kind of
// its value; numbers are little-endian.
enum class Wire : uint8_t { varint = 0, fixed64 = 1, bytes = 2, fixed32 = 5 };

void put_varint(std::string& out, uint64_t value) {
  for (; value >= 0x80; value >>= 7) {
    out += static_cast<char>(value | 0x80);
  }
  out += static_cast<char>(value);
}

void put_fixed(std::string& out, uint64_t bits, int bytes) {
  for (int i = 0; i < bytes; ++i) {
    out += static_cast<char>(bits >> (8 * i));
  }
}

void put_key(std::string& out, int field, Wire wire) {
  put_varint(out, static_cast<uint64_t>(field) << 3 | static_cast<uint64_t>(wire));
}

void put_integer(std::string& out, int field, int64_t value) {
  put_key(out, field, Wire::varint);
  put_varint(out, static_cast<uint64_t>(value));
}

void put_double(std::string& out, int field, double value) {
  put_key(out, field, Wire::fixed64);
  put_fixed(out, std::bit_cast<uint64_t>(value), 8);
}

void put_float(std::string& out, int field, float value) {
  put_key(out, field, Wire::fixed32);
  put_fixed(out, std::bit_cast<uint32_t>(value), 4);
}

void put_bytes(std::string& out, int field, std::string_view bytes) {
  put_key(out, field, Wire::bytes);
  put_varint(out, bytes.size());
  out += bytes;
}

void put_doubles(std::string& out, int field, std::span<const double> values) {
  std::string packed;
  for (const double value : values) {
    put_fixed(packed, std::bit_cast<uint64_t>(value), 8);
  }
  put_bytes(out, field, packed);
}

/// Event: wall_time = 1, step = 2, and one of file_version = 3, summary = 5, session_log = 7.
std::string event(int64_t step, int field, std::string_view content) {
  const std::chrono::duration<double> now = std::chrono::system_clock::now().time_since_epoch();
  std::string out;
  put_double(out, 1, now.count());
  put_integer(out, 2, step);
  put_bytes(out, field, content);
  return out;
}
constexpr int kFileVersion = 3;
constexpr int kSummary = 5;
constexpr int kSessionLog = 7;

constexpr std::string_view kPrefix = "events.out.tfevents.";

/// The seconds in the name of a folder's next file: the clock's, or more than those of all earlier files. TensorBoard
/// reads the files in the order of their names, and the clock may have been set back.
int64_t next_seconds(const std::filesystem::path& folder) {
  constexpr int64_t kLast = 9'999'999'998;  // names of ten digits sort as their numbers
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  int64_t seconds = std::chrono::duration_cast<std::chrono::seconds>(now).count();
  std::error_code error;
  for (std::filesystem::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    int64_t number = 0;
    if (name.starts_with(kPrefix) &&
        std::from_chars(name.data() + kPrefix.size(), name.data() + name.size(), number).ec == std::errc() &&
        number <= kLast) {
      seconds = std::max(seconds, number + 1);
    }
  }
  return seconds;
}

/// TFRecord's mask: plain CRCs of data that contains CRCs are weak.
uint32_t masked(uint32_t crc) {
  return std::rotr(crc, 15) + 0xA282EAD8U;
}

constexpr std::array<uint32_t, 256> make_crc_table() {
  std::array<uint32_t, 256> table{};
  for (uint32_t i = 0; i < 256; ++i) {
    uint32_t crc = i;
    for (int bit = 0; bit < 8; ++bit) {
      crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0x82F63B78U : 0U);
    }
    table[i] = crc;
  }
  return table;
}

}  // namespace

uint32_t crc32c(std::string_view bytes) {
  static constexpr std::array<uint32_t, 256> table = make_crc_table();
  uint32_t crc = ~0U;
  for (const char byte : bytes) {
    crc = (crc >> 8) ^ table[(crc ^ static_cast<unsigned char>(byte)) & 0xFF];
  }
  return ~crc;
}

EventFile::EventFile(const std::filesystem::path& folder, int64_t first_step) {
  for (int64_t seconds = next_seconds(folder); !file_; ++seconds) {
    path_ = folder / fmt::format("{}{:010}.{}.norma", kPrefix, seconds, ::getpid());
    file_.reset(std::fopen(path_.c_str(), "wbx"));
    if (!file_ && errno != EEXIST) {
      cannot_write("events", path_, errno);
    }
  }
  write(event(0, kFileVersion, "brain.Event:2"));
  if (first_step > 0) {
    std::string session;  // SessionLog: status = 1, whose value START is 1
    put_integer(session, 1, 1);
    write(event(first_step, kSessionLog, session));
  }
}

void EventFile::write(const std::string& event) {
  std::string length;
  put_fixed(length, event.size(), 8);
  std::string record = length;
  put_fixed(record, masked(crc32c(length)), 4);
  record += event;
  put_fixed(record, masked(crc32c(event)), 4);
  if (std::fwrite(record.data(), 1, record.size(), file_.get()) != record.size() || std::fflush(file_.get()) != 0) {
    cannot_write("events", path_, errno);
  }
}

void EventFile::add_scalars(int64_t step, const Scalars& scalars) {
  std::string summary;  // Summary: value = 1; Value: tag = 1, simple_value = 2
  for (const auto& [tag, number] : scalars) {
    std::string value;
    put_bytes(value, 1, tag);
    put_float(value, 2, static_cast<float>(number));
    put_bytes(summary, 1, value);
  }
  if (!scalars.empty()) {
    write(event(step, kSummary, summary));
  }
}

void EventFile::add_histogram(int64_t step, std::string_view tag, std::span<const float> values) {
  constexpr size_t kBuckets = 30;
  double least = INFINITY;
  double most = -INFINITY;
  double sum = 0;
  double squares = 0;
  int64_t count = 0;
  for (const float value : values) {
    if (std::isfinite(value)) {
      least = std::min<double>(least, value);
      most = std::max<double>(most, value);
      sum += value;
      squares += static_cast<double>(value) * value;
      ++count;
    }
  }
  if (count == 0) {
    return;
  }
  // Upper ends of the intervals. Equal values lie in one interval around them, with a width in proportion to their
  // size.
  const double width = most > least ? (most - least) / kBuckets : std::max(std::abs(most), 1.0) * 1e-6;
  std::array<double, kBuckets> limits{};
  std::array<double, kBuckets> counts{};
  for (size_t i = 0; i < kBuckets; ++i) {
    limits[i] = least + width * static_cast<double>(i + 1);
  }
  limits.back() = std::max(limits.back(), most);
  for (const float value : values) {
    if (std::isfinite(value)) {
      const auto bucket = static_cast<size_t>((value - least) / width);
      counts[std::min(bucket, kBuckets - 1)] += 1;
    }
  }
  std::string histogram;  // HistogramProto: min, max, num, sum, sum_squares = 1 … 5, bucket_limit = 6, bucket = 7
  put_double(histogram, 1, least);
  put_double(histogram, 2, most);
  put_double(histogram, 3, static_cast<double>(count));
  put_double(histogram, 4, sum);
  put_double(histogram, 5, squares);
  put_doubles(histogram, 6, limits);
  put_doubles(histogram, 7, counts);
  std::string value;  // Value: tag = 1, histo = 5
  put_bytes(value, 1, tag);
  put_bytes(value, 5, histogram);
  std::string summary;
  put_bytes(summary, 1, value);
  write(event(step, kSummary, summary));
}

}  // namespace norma::train
