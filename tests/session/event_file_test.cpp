#include "session/run_log.h"

#include "files.h"

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <unistd.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <string>
#include <string_view>
#include <vector>

using namespace norma;
using test::error_of;
using test::read_file;
using test::TemporaryFolder;
using train::crc32c;
using train::EventFile;

namespace {

uint64_t number(std::string_view bytes) {
  uint64_t value = 0;
  for (size_t i = 0; i < bytes.size(); ++i) {
    value |= uint64_t{static_cast<unsigned char>(bytes[i])} << (8 * i);
  }
  return value;
}

/// The fields of a protocol buffer; of each the bytes, those of a varint as 8.
std::multimap<int, std::string> fields_of(std::string_view bytes) {
  const auto varint = [&] {
    uint64_t value = 0;
    for (int shift = 0;; shift += 7) {
      REQUIRE(!bytes.empty());
      const auto byte = static_cast<unsigned char>(bytes.front());
      bytes.remove_prefix(1);
      value |= uint64_t{byte & 0x7FU} << shift;
      if (byte < 0x80) {
        return value;
      }
    }
  };
  std::multimap<int, std::string> fields;
  while (!bytes.empty()) {
    const uint64_t key = varint();
    std::string value;
    if ((key & 7) == 0) {
      const uint64_t whole = varint();
      value.assign(reinterpret_cast<const char*>(&whole), 8);
    } else {
      const size_t length = (key & 7) == 1 ? 8 : (key & 7) == 5 ? 4 : varint();
      REQUIRE(length <= bytes.size());
      value = bytes.substr(0, length);
      bytes.remove_prefix(length);
    }
    fields.emplace(static_cast<int>(key >> 3), value);
  }
  return fields;
}

double as_double(std::string_view bytes) {
  return std::bit_cast<double>(number(bytes));
}

std::vector<double> doubles(std::string_view packed) {
  std::vector<double> values;
  for (size_t i = 0; i + 8 <= packed.size(); i += 8) {
    values.push_back(as_double(packed.substr(i, 8)));
  }
  return values;
}

/// The events of a file; its check sums are right.
std::vector<std::multimap<int, std::string>> events_of(const std::string& file) {
  const auto masked = [](std::string_view bytes) { return std::rotr(crc32c(bytes), 15) + 0xA282EAD8U; };
  std::vector<std::multimap<int, std::string>> events;
  for (std::string_view rest = file; !rest.empty();) {
    REQUIRE(rest.size() >= 16);
    const uint64_t length = number(rest.substr(0, 8));
    REQUIRE(rest.size() >= 16 + length);
    CHECK(number(rest.substr(8, 4)) == masked(rest.substr(0, 8)));
    CHECK(number(rest.substr(12 + length, 4)) == masked(rest.substr(12, length)));
    events.push_back(fields_of(rest.substr(12, length)));
    rest.remove_prefix(16 + length);
  }
  return events;
}

}  // namespace

TEST_CASE("crc32c: the check value, and those of RFC 3720") {
  CHECK(crc32c("123456789") == 0xE3069283U);
  CHECK(crc32c(std::string(32, '\0')) == 0x8A9136AAU);
  CHECK(crc32c(std::string(32, '\xFF')) == 0x62A8AB43U);
  CHECK(crc32c("") == 0);
}

TEST_CASE("event file: version, curves and histograms") {
  const TemporaryFolder folder;
  EventFile file(folder.path());
  CHECK(file.file().parent_path() == folder.path());
  CHECK(file.file().filename().string().starts_with("events.out.tfevents."));
  file.add_scalars(300, {{"loss/train", 2.5}, {"lr", 0.1}});
  file.add_scalars(301, {});
  const std::vector<float> values = {-1, 0, 0.5F, 2, NAN, std::numeric_limits<float>::infinity()};
  file.add_histogram(302, "norm/bn1.weight", values);
  file.add_histogram(303, "none", std::vector<float>{NAN});
  file.add_histogram(304, "equal", std::vector<float>(5, 3));

  const auto events = events_of(read_file(file.file()));
  REQUIRE(events.size() == 4);
  CHECK(events[0].find(3)->second == "brain.Event:2");
  CHECK(as_double(events[0].find(1)->second) > 1.6e9);

  CHECK(number(events[1].find(2)->second) == 300);
  const auto summary = fields_of(events[1].find(5)->second);
  REQUIRE(summary.count(1) == 2);
  const auto loss = fields_of(summary.begin()->second);
  const auto lr = fields_of(std::next(summary.begin())->second);
  CHECK(loss.find(1)->second == "loss/train");
  CHECK(std::bit_cast<float>(static_cast<uint32_t>(number(loss.find(2)->second))) == 2.5F);
  CHECK(lr.find(1)->second == "lr");
  CHECK(std::bit_cast<float>(static_cast<uint32_t>(number(lr.find(2)->second))) == 0.1F);

  const auto value = fields_of(fields_of(events[2].find(5)->second).find(1)->second);
  CHECK(value.find(1)->second == "norm/bn1.weight");
  const auto histogram = fields_of(value.find(5)->second);
  CHECK(as_double(histogram.find(1)->second) == -1);
  CHECK(as_double(histogram.find(2)->second) == 2);
  CHECK(as_double(histogram.find(3)->second) == 4);
  CHECK(as_double(histogram.find(4)->second) == 1.5);
  CHECK(as_double(histogram.find(5)->second) == 5.25);
  const std::vector<double> limits = doubles(histogram.find(6)->second);
  const std::vector<double> counts = doubles(histogram.find(7)->second);
  REQUIRE(limits.size() == 30);
  REQUIRE(counts.size() == 30);
  CHECK(limits.back() >= 2);
  CHECK(counts[0] == 1);   // -1 lies in [-1, -0.9)
  CHECK(counts[10] == 1);  // 0 in [0, 0.1)
  CHECK(counts[15] == 1);
  CHECK(counts[29] == 1);
  double sum = 0;
  for (size_t i = 0; i < 30; ++i) {
    sum += counts[i];
    CHECK((i == 0 || limits[i] > limits[i - 1]));
  }
  CHECK(sum == 4);

  const auto equal = fields_of(fields_of(fields_of(events[3].find(5)->second).find(1)->second).find(5)->second);
  CHECK(doubles(equal.find(7)->second)[0] == 5);
  CHECK(doubles(equal.find(6)->second)[0] > 3);
}

TEST_CASE("event file: a run that goes on takes back what came after its step") {
  const TemporaryFolder folder;
  const EventFile file(folder.path(), 41);
  const auto events = events_of(read_file(file.file()));
  REQUIRE(events.size() == 2);
  CHECK(number(events[1].find(2)->second) == 41);
  CHECK(number(fields_of(events[1].find(7)->second).find(1)->second) == 1);
}

TEST_CASE("event file: a folder that is not there") {
  const TemporaryFolder folder;
  const std::string text = error_of([&] { EventFile(folder.path() / "none"); });
  CHECK(text.starts_with("events: cannot write " + (folder.path() / "none/events.out.tfevents.").string()));
  CHECK(text.ends_with(": No such file or directory"));
}

TEST_CASE("event file: the next one has a later name, whatever the clock says") {
  const TemporaryFolder folder;
  for (const char* name : {"events.out.tfevents.4102444800.1.norma", "events.out.tfevents.0000000005.host.7.v2",
                           "events.out.tfevents.x", "events.out.tfevents.99999999999999.far", "metrics.csv"}) {
    test::write_file(folder / name, "");  // the first is of the year 2100
  }
  const EventFile next(folder.path(), 1);
  CHECK(next.file().filename() == fmt::format("events.out.tfevents.4102444801.{}.norma", ::getpid()));
  const EventFile after(folder.path(), 2);
  CHECK(after.file().filename() == fmt::format("events.out.tfevents.4102444802.{}.norma", ::getpid()));
}
