#include "core/event.h"

#include <doctest/doctest.h>

#include <chrono>
#include <thread>

using namespace norma;

TEST_CASE("event: seconds between two moments, in their order") {
  for (const Device device : {kCpu, kCudaEmulated}) {
    INFO(to_string(device));
    Event start(device);
    Event end(device);
    start.record();
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    end.record();
    CHECK(end.seconds_since(start) >= 0.002);
    CHECK(start.seconds_since(end) == -end.seconds_since(start));
    start.record();
    CHECK(end.seconds_since(start) <= 0);
  }
}
