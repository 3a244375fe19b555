#include "lab/bench/norm_sweep.h"

#include "error_text.h"
#include "json.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <set>

using namespace norma;
using namespace norma::lab::bench;
using test::error_of;

namespace {

SweepOptions small_options() {
  SweepOptions options;
  options.norms = {"batch", "group:32", "rms2d"};
  options.dtypes = {"float32"};
  options.shapes = {"images"};
  options.batch_sizes = {2};
  options.channels = {24, 64};
  options.image_sizes = {7};
  options.quick = true;
  return options;
}

int64_t count_lines(const std::string& text) {
  return std::count(text.begin(), text.end(), '\n');
}

}  // namespace

TEST_CASE("bench-norms: every norm, format and direction, groups that do not divide are left out") {
  const Sweep sweep = run_sweep(small_options());
  CHECK(sweep.complete);
  // 24 channels: two norms, 64: three; in two formats and directions.
  REQUIRE(sweep.rows.size() == 20);
  std::set<std::string> seen;
  for (const SweepRow& row : sweep.rows) {
    CAPTURE(row.norm);
    CHECK(row.seconds > 0);
    CHECK(row.copy_rate > 0);
    CHECK(row.share_low > 0);
    CHECK(row.share_low <= row.share_high);
    CHECK(row.x_bytes == 4.0 * 2 * row.sizes[1] * 49);
    CHECK(row.bytes() == (row.backward ? 3 : 2) * row.x_bytes);
    CHECK(row.share() == row.bytes() / row.seconds / row.copy_rate);
    CHECK(!(row.norm == "group:32" && row.sizes[1] == 24));
    seen.insert(row.norm + (row.backward ? " backward" : " forward") +
                (row.format == MemoryFormat::channels_last ? " nhwc" : " nchw"));
  }
  CHECK(seen.size() == 12);

  const std::string csv = to_csv(sweep);
  CHECK(csv.starts_with(
      "norm,shape,sizes,dtype,format,direction,x_bytes,ms,gb_per_s,copy_gb_per_s,share,share_low,share_high\n"
      "batch,images,2x24x7x7,float32,contiguous,forward,9408,"));
  CHECK(count_lines(csv) == 21);
  const auto json = test::parse_json(to_json(sweep));
  CHECK(json["rows"].size() == 20);
  CHECK(json["rows"][0]["norm"] == "batch");
  CHECK(json["environment"]["device"] == "cpu");
  const std::string table = to_table(sweep);
  CHECK(count_lines(table) == 13);
  CHECK(table.find("float32  backward  images  channels_last  group:32") != std::string::npos);
  const std::string script = to_gnuplot(sweep);
  CHECK(script.find("set output 'share-float32.png'") != std::string::npos);
  CHECK(script.find("pick('rms2d', 'float32', 'channels_last', 'backward')") != std::string::npos);
}

TEST_CASE("bench-norms: bfloat16 moves half the bytes, rows have layer norm for layer2d, rms norm for rms2d") {
  SweepOptions options = small_options();
  options.norms = {"layer2d", "rms2d"};
  options.dtypes = {"bfloat16"};
  options.channels = {64};
  options.shapes = {"images", "rows"};
  const Sweep sweep = run_sweep(options);
  REQUIRE(sweep.rows.size() == 8 + 8);  // images in two formats; 128 and 1024 features; both with two norms
  CHECK(sweep.rows[0].x_bytes == 2.0 * 2 * 64 * 49);
  CHECK(sweep.rows[8].shape == "rows");
  CHECK(sweep.rows[8].norm == "layer2d");
  CHECK(sweep.rows[8].sizes == Sizes{2048, 128});
  CHECK(sweep.rows[10].norm == "rms2d");
}

TEST_CASE("bench-norms: what is chosen is measured, and nothing else") {
  SweepOptions options = small_options();
  options.norms = SweepOptions().norms;
  options.shapes = {};
  const Sweep sizes = run_sweep(options);
  CHECK(std::all_of(sizes.rows.begin(), sizes.rows.end(), [](const SweepRow& row) { return row.shape == "images"; }));
  options.shapes = {"images", "rows"};
  options.norms = {"batch"};
  const Sweep norms = run_sweep(options);
  CHECK(std::all_of(norms.rows.begin(), norms.rows.end(), [](const SweepRow& row) { return row.norm == "batch"; }));
  options.shapes = {"rows"};
  CHECK(error_of([&] { check_options(options); }) ==
        "bench-norms: shapes: expected images for these norms: rows and volume are for layer2d and rms2d");
}

TEST_CASE("bench-norms: shares above those of a copy, and rounds that lie apart, have a warning") {
  const auto row = [](double seconds, double low, double high) {
    return SweepRow{.norm = "batch",
                    .shape = "images",
                    .sizes = {2, 24, 7, 7},
                    .x_bytes = 9408,
                    .seconds = seconds,
                    .copy_rate = 2 * 9408,
                    .share_low = low,
                    .share_high = high};
  };
  Sweep sweep;
  sweep.rows = {row(2, 0.4, 0.6), row(1, 0.9, 1)};
  CHECK(warnings_of(sweep).empty());
  sweep.rows.push_back(row(0.5, 1, 2.5));
  REQUIRE(warnings_of(sweep).size() == 2);
  CHECK(
      warnings_of(sweep)[0] ==
      "1 of 3 measurements above 100 % of a copy, up to 200 % (batch forward, float32 2x24x7x7, 0.00941 MB): inputs "
      "that stay in the caches ask nothing of memory, and a copy of few bytes takes as long as its call. Compare norms "
      "on inputs of more than 4 MB.");
  CHECK(warnings_of(sweep)[1] ==
        "1 of 3 measurements with quartiles that lie more than half of the share apart (share_low, share_high in "
        "results.csv): the machine had other work; measure again.");
  CHECK(to_table(sweep).find("  50 to 200  ") != std::string::npos);
  sweep.rows.back().x_bytes = 12'800'000;
  CHECK(warnings_of(sweep)[0].ends_with(" Compare norms on inputs of more than 12.8 MB."));
}

TEST_CASE("bench-norms: on a device that is not the host, and the results name it") {
  const DefaultDeviceGuard emulated(kCudaEmulated);
  SweepOptions options = small_options();
  options.channels = {32};
  const Sweep sweep = run_sweep(options);
  REQUIRE(sweep.rows.size() == 12);
  for (const SweepRow& row : sweep.rows) {
    CHECK(row.seconds > 0);
    CHECK(row.copy_rate > 0);
  }
  CHECK(test::parse_json(to_json(sweep))["environment"]["device"] == "cuda-emulated:0");
}

TEST_CASE("bench-norms: the time is said before the first shape") {
  SweepOptions options = small_options();
  std::vector<std::string> lines;
  options.log = [&](const std::string& line) { lines.push_back(line); };
  run_sweep(options);
  CHECK(lines.front().find(" shapes in float32") != std::string::npos);
  CHECK(lines.front().find(": about 0:0") != std::string::npos);
  CHECK(lines.size() > 1);
}

TEST_CASE("bench-norms: images that are too large are left out") {
  SweepOptions options = small_options();
  options.max_bytes = 10000;
  const Sweep sweep = run_sweep(options);
  for (const SweepRow& row : sweep.rows) {
    CHECK(row.sizes[1] == 24);
  }
  CHECK(sweep.rows.size() == 8);
}

TEST_CASE("bench-norms: options that make no sense") {
  const auto complaint = [](auto&& change) {
    SweepOptions options = small_options();
    change(options);
    return error_of([&] { check_options(options); });
  };
  CHECK(complaint([](SweepOptions& o) { o.formats = {"contigous"}; }) ==
        "bench-norms: formats: unknown name 'contigous'; did you mean 'contiguous'?");
  CHECK(complaint([](SweepOptions& o) { o.dtypes = {"int64"}; }).starts_with("bench-norms: dtypes: unknown name"));
  CHECK(complaint([](SweepOptions& o) {
          o.shapes = {"rows", "rows"};
        }) == "bench-norms: shapes: expected each once, got rows twice");
  CHECK(complaint([](SweepOptions& o) {
          o.norms = {"batch", "batch"};
        }) == "bench-norms: norms: expected each once, got batch twice");
  CHECK(complaint([](SweepOptions& o) { o.norms = {}; }) == "bench-norms: norms: expected at least one");
  CHECK(complaint([](SweepOptions& o) { o.channels = {0}; }) ==
        "bench-norms: channels: expected a whole number from 1 to 65536, got 0");
  CHECK(complaint([](SweepOptions& o) { o.max_bytes = -(1 << 20); }) ==
        "bench-norms: max-mb: expected at least 0, got -1");
  CHECK(complaint([](SweepOptions& o) { o.max_bytes = 5; }) ==
        "bench-norms: shapes, max-mb: expected at least one shape of these norms in 4.77e-06 MiB, got none");
}
