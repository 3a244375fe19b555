#include "virtual_gpu/streams.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <set>
#include <stdexcept>

// The order in which streams do their work, without CUDA's functions around them.

namespace virtual_gpu {
namespace {

/// Streams whose work writes its name down when it runs.
class Recorder {
 public:
  explicit Recorder(uint64_t seed)
      : streams(seed, [this](const std::string& what, const std::exception& error) {
          failure = what + ": " + error.what();
        }) {}

  Ticket put(Stream& stream, const std::string& name) {
    return streams.put(stream, later(name, [this, name] {
                         done.push_back(name);
                         return 1.0;
                       }));
  }
  [[nodiscard]] bool is_before(const std::string& first, const std::string& second) const {
    const auto a = std::find(done.begin(), done.end(), first);
    const auto b = std::find(done.begin(), done.end(), second);
    return a != done.end() && b != done.end() && a < b;
  }

  Streams streams;
  std::vector<std::string> done;
  std::string failure;
};

constexpr uint64_t kSeeds = 50;

TEST_CASE("streams: work waits until something asks for it") {
  Recorder recorder(1);
  Stream& stream = *recorder.streams.create(/*blocking=*/false);
  const Ticket first = recorder.put(stream, "first");
  recorder.put(stream, "second");
  CHECK(recorder.done.empty());
  CHECK(!recorder.streams.is_done(first));
  recorder.streams.finish(stream);
  CHECK(recorder.done == std::vector<std::string>{"first", "second"});
  CHECK(recorder.streams.is_done(first));
  CHECK(recorder.streams.seconds() == 2.0);
}

TEST_CASE("streams: two that no event orders run in either order, by the seed, and each in its own") {
  std::set<std::vector<std::string>> orders;
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    Recorder recorder(seed);
    Stream& a = *recorder.streams.create(false);
    Stream& b = *recorder.streams.create(false);
    recorder.put(a, "a1");
    recorder.put(a, "a2");
    recorder.put(b, "b1");
    recorder.put(b, "b2");
    recorder.streams.finish_all();
    CHECK(recorder.is_before("a1", "a2"));
    CHECK(recorder.is_before("b1", "b2"));
    orders.insert(recorder.done);
  }
  CHECK(orders.size() == 6);  // all interleavings of two and two
}

TEST_CASE("streams: a wait for one runs nothing, some or all of another first") {
  std::set<size_t> counts;
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    Recorder recorder(seed);
    Stream& a = *recorder.streams.create(false);
    Stream& b = *recorder.streams.create(false);
    for (const char* name : {"b1", "b2", "b3"}) {
      recorder.put(b, name);
    }
    recorder.put(a, "a");
    recorder.streams.finish(a);
    CHECK(recorder.done.back() == "a");
    counts.insert(recorder.done.size());
  }
  CHECK(counts.contains(1));
  CHECK(counts.contains(4));
}

TEST_CASE("streams: an event orders what comes after it in another stream, and nothing before") {
  bool was_early = false;
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    Recorder recorder(seed);
    Stream& a = *recorder.streams.create(false);
    Stream& b = *recorder.streams.create(false);
    Event event;
    recorder.put(b, "b before");
    recorder.put(a, "a before");
    recorder.streams.record(a, event);
    recorder.put(a, "a after");
    recorder.streams.wait_for(b, event);
    recorder.put(b, "b after");
    recorder.streams.finish(b);
    CHECK(recorder.is_before("a before", "b after"));
    recorder.streams.finish_all();
    was_early |= recorder.is_before("b after", "a after") && recorder.is_before("b before", "a before");
  }
  CHECK(was_early);
}

TEST_CASE("streams: an event holds what was recorded when the other stream began to wait") {
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    Recorder recorder(seed);
    Stream& a = *recorder.streams.create(false);
    Stream& b = *recorder.streams.create(false);
    Event event;
    recorder.put(a, "a1");
    recorder.streams.record(a, event);
    recorder.streams.wait_for(b, event);
    recorder.put(a, "a2");
    recorder.streams.record(a, event);
    recorder.put(b, "b");
    recorder.streams.finish_all();
    CHECK(recorder.is_before("a1", "b"));
  }
}

TEST_CASE("streams: the default one and blocking ones wait for each other, others do not") {
  bool was_free = false;
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    Recorder recorder(seed);
    Stream& blocking = *recorder.streams.create(true);
    Stream& free = *recorder.streams.create(false);
    recorder.put(blocking, "blocking 1");
    recorder.put(free, "free 1");
    recorder.put(recorder.streams.default_stream(), "default");
    recorder.put(blocking, "blocking 2");
    recorder.put(free, "free 2");
    recorder.streams.finish_all();
    CHECK(recorder.is_before("blocking 1", "default"));
    CHECK(recorder.is_before("default", "blocking 2"));
    was_free |= recorder.is_before("free 2", "blocking 1");
  }
  CHECK(was_free);
}

TEST_CASE("streams: a full queue makes room by doing work") {
  Recorder recorder(3);
  Stream& stream = *recorder.streams.create(false);
  for (size_t i = 0; i < Streams::kLongestQueue; ++i) {
    recorder.put(stream, "early");
  }
  CHECK(recorder.done.empty());
  recorder.put(stream, "late");
  CHECK(recorder.done.size() == 1);
}

TEST_CASE("streams: time passes for a program that asks again and again") {
  Recorder recorder(4);
  Stream& stream = *recorder.streams.create(false);
  const Ticket ticket = recorder.put(stream, "work");
  int asked = 0;
  while (!recorder.streams.is_done(ticket) && asked < 1000) {
    recorder.streams.pass_time();
    ++asked;
  }
  CHECK(recorder.done.size() == 1);
}

TEST_CASE("streams: what waits for another process holds up its own stream alone, until it is ready") {
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    Recorder recorder(seed);
    Stream& a = *recorder.streams.create(false);
    Stream& b = *recorder.streams.create(false);
    int asked = 0;
    bool may_run = false;
    recorder.put(a, "a before");
    recorder.streams.put(a, {.what = "waits",
                             .begin =
                                 [&](Ticket) {
                                   return [&] {
                                     CHECK(may_run);
                                     recorder.done.push_back("waits");
                                     return 1.0;
                                   };
                                 },
                             .is_ready =
                                 [&] {
                                   CHECK(std::ranges::find(recorder.done, "a before") != recorder.done.end());
                                   may_run = may_run || ++asked == 1000;
                                   return may_run;
                                 }});
    recorder.put(a, "a behind");
    for (const char* name : {"b1", "b2", "b3"}) {
      recorder.put(b, name);
    }
    recorder.streams.finish(b);
    CHECK(std::ranges::find(recorder.done, "b3") != recorder.done.end());
    for (int i = 0; i < 10; ++i) {
      recorder.streams.pass_time();
    }
    CHECK(std::ranges::find(recorder.done, "a behind") == recorder.done.end());
    asked = std::max(asked, 990);
    recorder.streams.finish(a);
    CHECK(recorder.is_before("waits", "a behind"));
  }
}

TEST_CASE("streams: after a failure no work is done") {
  Recorder recorder(5);
  Stream& stream = *recorder.streams.create(false);
  recorder.streams.put(stream, later("broken", []() -> double { throw std::runtime_error("on purpose"); }));
  recorder.put(stream, "next");
  recorder.streams.finish(stream);
  CHECK(recorder.failure == "broken: on purpose");
  recorder.put(stream, "much later");
  recorder.streams.finish_all();
  CHECK(recorder.done.empty());
}

TEST_CASE("streams: a destroyed one still does its work") {
  Recorder recorder(6);
  Stream* stream = recorder.streams.create(false);
  recorder.put(*stream, "work");
  recorder.streams.destroy(stream);
  CHECK(!recorder.streams.is_stream(stream));
  recorder.streams.finish_all();
  CHECK(recorder.done.size() == 1);
}

}  // namespace
}  // namespace virtual_gpu
