#include "core/op_profile.h"

#include "base/error.h"
#include "core/copy.h"
#include "core/factory.h"
#include "core/op.h"

#include <doctest/doctest.h>

#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

using namespace norma;

namespace {

/// A device that goes on by itself: only its events know when it has done what.
struct FakeDevice {
  double seconds = 0;  ///< the work that it was given
  int questions = 0;   ///< each of them would wait for a real device
  bool fails = false;

  [[nodiscard]] OpProfile::MakeEvent events() {
    return [this] { return std::make_unique<Event>(*this); };
  }

  class Event final : public DeviceEvent {
   public:
    explicit Event(FakeDevice& device) : device_(device) {}
    void record() override {
      check(!device_.fails, "event", "the device has failed");
      moment_ = device_.seconds;
    }
    [[nodiscard]] double seconds_since(const DeviceEvent& start) const override {
      ++device_.questions;
      return moment_ - dynamic_cast<const Event&>(start).moment_;
    }

   private:
    FakeDevice& device_;
    double moment_ = -1e9;
  };
};

OpWork work(const std::string& op) {
  return {.op = op};
}

std::vector<std::string> ops_of(const OpProfile& profile) {
  std::vector<std::string> ops;
  for (const OpRecord& record : profile.records()) {
    ops.push_back(record.work.op);
  }
  return ops;
}

std::vector<double> seconds_of(const OpProfile& profile) {
  std::vector<double> seconds;
  for (const OpRecord& record : profile.records()) {
    seconds.push_back(record.seconds);
  }
  return seconds;
}

using Names = std::vector<std::string>;
using Seconds = std::vector<double>;

}  // namespace

TEST_CASE("profile: on a device that works by itself events take the times, and only a question waits") {
  FakeDevice device;
  const OpProfile profile(device.events());
  {
    const OpScope outer([] { return work("outer"); });
    device.seconds += 1;
    {
      const OpScope inner([] { return work("inner"); });
      device.seconds += 2;
      const OpScope innermost([] { return work("innermost"); });
      device.seconds += 4;
    }
    device.seconds += 8;
    const OpScope second([] { return work("second"); });
    device.seconds += 16;
  }
  CHECK(profile.size() == 4);
  CHECK(device.questions == 0);
  CHECK(ops_of(profile) == Names{"innermost", "inner", "second", "outer"});
  CHECK(seconds_of(profile) == Seconds{4, 2, 16, 9});
  CHECK(profile.seconds() == 31);
  const int questions = device.questions;
  CHECK(profile.seconds() == 31);
  CHECK(device.questions == questions);
}

TEST_CASE("profile: events of scopes that are open while the records are read or forgotten") {
  FakeDevice device;
  OpProfile profile(device.events());
  {
    const OpScope outer([] { return work("outer"); });
    {
      const OpScope inner([] { return work("inner"); });
      device.seconds += 1;
    }
    CHECK(seconds_of(profile) == Seconds{1});
    {
      const OpScope inner([] { return work("inner"); });
      device.seconds += 2;
    }
    device.seconds += 4;
  }
  CHECK(seconds_of(profile) == Seconds{1, 2, 4});
  {
    const OpScope outer([] { return work("outer"); });
    {
      const OpScope inner([] { return work("inner"); });
      device.seconds += 8;
    }
    profile.clear();
    CHECK(profile.size() == 0);
    device.seconds += 16;
  }
  CHECK(ops_of(profile) == Names{"outer"});
  CHECK(seconds_of(profile) == Seconds{16});
}

TEST_CASE("profile: a discarded scope leaves no record, and the scopes inside it count as opened around it") {
  SUBCASE("events") {
    FakeDevice device;
    const OpProfile profile(device.events());
    {
      const OpScope outer([] { return work("outer"); });
      device.seconds += 1;
      {
        OpScope tried([] { return work("tried"); });
        tried.discard();
        device.seconds += 2;
        const OpScope inner([] { return work("inner"); });
        device.seconds += 4;
      }
      device.seconds += 8;
    }
    CHECK(ops_of(profile) == Names{"inner", "outer"});
    CHECK(seconds_of(profile) == Seconds{4, 11});
  }
  SUBCASE("the host's clock") {
    const auto start = std::chrono::steady_clock::now();
    const OpProfile profile(kCpu);
    {
      const OpScope outer([] { return work("outer"); });
      OpScope tried([] { return work("tried"); });
      tried.discard();
      const OpScope inner([] { return work("inner"); });
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    const double passed = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    CHECK(ops_of(profile) == Names{"inner", "outer"});
    CHECK(profile.records()[0].seconds >= 0.02);
    CHECK(profile.records()[1].seconds >= 0);
    CHECK(profile.seconds() <= passed);
  }
}

TEST_CASE("profile: a device that fails inside a scope ends no program") {
  FakeDevice device;
  const OpProfile profile(device.events());
  {
    const OpScope outer([] { return work("outer"); });
    {
      const OpScope inner([] { return work("inner"); });
      device.seconds += 1;
    }
    {
      const OpScope lost([] { return work("lost"); });
      device.seconds += 2;
      device.fails = true;
    }
    CHECK_THROWS_AS(OpScope([] { return work("not begun"); }), Error);
    device.fails = false;
    const OpScope next([] { return work("next"); });
    device.seconds += 4;
  }
  CHECK(ops_of(profile) == Names{"inner", "next", "outer"});
  CHECK(seconds_of(profile) == Seconds{1, 4, 2});
}

TEST_CASE("profile: the times of ops on the default device add up to the whole") {
  const Tensor x = ones({64, 1024});
  Event start;
  Event end;
  const OpProfile profile;
  start.record();
  {
    const OpScope outer([] { return work("outer"); });
    const Tensor y = copy_of(x, MemoryFormat::contiguous, DType::float64);
  }
  end.record();
  CHECK(ops_of(profile) == Names{"copy", "outer"});
  const double whole = end.seconds_since(start);
  CHECK(profile.records()[0].seconds > 0);
  CHECK(profile.records()[1].seconds >= 0);
  CHECK(profile.seconds() <= whole * (1 + 1e-3));  // a GPU's events have the digits of float32
}

TEST_CASE("op profile: a device without the kernels leaves no entry") {
  struct Kernels {
    int answer;
  };
  const Kernels of_cpu{42};
  const ByDevice<Kernels> family{.cpu = &of_cpu, .cuda = nullptr, .emulated = nullptr};
  const OpProfile profile(kCpu);
  const Op op("mine");
  CHECK(op.run(family, kCpu, [] { return work("mine"); })->answer == 42);
  CHECK_THROWS_AS(static_cast<void>(op.run(family, kCuda, [] { return work("mine"); })), Error);
  CHECK(ops_of(profile) == std::vector<std::string>{"mine"});
}
