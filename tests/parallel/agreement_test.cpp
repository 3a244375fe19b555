#include "error_text.h"
#include "parallel/group.h"
#include "support.h"
#include "train/processes.h"

#include <fmt/format.h>

#include <chrono>
#include <thread>

using namespace norma;
using test::error_of;
using test::group;

namespace {

bool is_last() {
  return group().rank() == group().size() - 1;
}

}  // namespace

TEST_CASE("ranks: they decide as the first one does") {
  CHECK(train::of_first(group(), group().is_first()));
  CHECK_FALSE(train::of_first(group(), !group().is_first()));
  CHECK(train::text_of_first(group(), fmt::format("rank {}", group().rank())) == "rank 0");
  CHECK(train::text_of_first(group(), group().is_first() ? "" : "not asked for").empty());
  CHECK(train::first_text(group(), is_last() ? "of the last" : "") == "of the last");
  CHECK(train::first_text(group(), "").empty());
}

TEST_CASE("ranks: an error of one is that of all, and then they go on together") {
  const auto agreed = [](const std::function<void()>& work) {
    try {
      train::do_together(group(), work);
      return std::string("none");
    } catch (const train::AgreedError& error) {
      return std::string(error.what());
    } catch (const Error& error) {  // of a group of one
      return std::string(error.what());
    }
  };
  CHECK(agreed([] { check(!is_last(), "test", "work: expected none for the last rank"); }) ==
        "test: work: expected none for the last rank");
  CHECK(agreed([] {}) == "none");
  int done = 0;
  train::do_in_first(group(), [&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(450));  // two signs of life
    ++done;
  });
  CHECK(done == (group().is_first() ? 1 : 0));
  CHECK(error_of([] { train::do_in_first(group(), [] { fail("test", "work: expected a disk with room"); }); }) ==
        "test: work: expected a disk with room");
  group().barrier();
}

TEST_CASE("ranks: only what all have found is no reason to end") {
  const auto rethrown = [](const auto& error) {
    try {
      throw error;
    } catch (const std::exception&) {
      try {
        train::rethrow_unless_agreed(group());
      } catch (const std::exception&) {
        return true;
      }
      return false;
    }
  };
  CHECK_FALSE(rethrown(train::AgreedError("alike")));
  CHECK(rethrown(Error("alone")) == (group().size() > 1));
  CHECK(rethrown(parallel::PeerError("rank 1: gone")) == (group().size() > 1));
}
