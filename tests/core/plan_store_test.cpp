#include "core/cuda/plan_store.h"

#include "base/error.h"
#include "error_text.h"
#include "files.h"

#include <doctest/doctest.h>

#include <cstdlib>
#include <fstream>

using norma::cuda::PlanStore;
using norma::test::error_of;

TEST_CASE("plan_store: what one process added, the next finds, the first counts, broken lines do not") {
  const norma::test::TemporaryFolder folder;
  const auto file = folder.path() / "a" / "plans.txt";
  {
    PlanStore store(file);
    CHECK(!store.find("case"));
    store.add("case", "first");
    store.add("other", "38 2=1");
    CHECK(store.add("case", "second") == "first");
    CHECK(store.find("case") == "first");
  }
  std::ofstream(file, std::ios::app) << "case\tthi";  // the process was killed
  PlanStore next(file);
  CHECK(next.find("case") == "first");
  CHECK(next.find("other") == "38 2=1");
  next.add("third", "3");
  CHECK(PlanStore(file).find("third") == "3");
  CHECK(PlanStore(file).find("case") == "first");
  PlanStore slow(file);
  CHECK(PlanStore(file).add("fourth", "of another process") == "of another process");
  CHECK(slow.add("fourth", "4") == "of another process");
  CHECK(slow.find("fourth") == "of another process");
  CHECK(error_of([&] { next.add("a\tb", "c"); }) == "plan_store: expected a text of one line, got 'a\tb'");
}

TEST_CASE("plan_store: a file that cannot be written is no error") {
  const norma::test::TemporaryFolder folder;
  std::ofstream(folder.path() / "file") << "x";
  for (const auto& file : {folder.path() / "file" / "plans.txt", std::filesystem::path()}) {
    PlanStore store(file);
    store.add("case", "way");
    CHECK(store.find("case") == "way");
  }
}
