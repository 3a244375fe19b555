#include "data/loader.h"

#include "core/copy.h"
#include "data/dataset.h"
#include "files.h"
#include "support.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <map>
#include <set>
#include <thread>

using namespace norma;
using namespace norma::data;
using norma::test::error_of;

namespace {

/// Image i is filled with i modulo 251, and i is its label.
class Counting final : public Dataset {
 public:
  explicit Counting(int64_t size, bool endless = false) {
    info_.name = "counting";
    info_.size = size;
    info_.endless = endless;
    info_.channels = 1;
    for (int64_t i = 0; i < size; ++i) {
      info_.class_names.push_back(std::to_string(i));
    }
    info_.height = 3;
    info_.width = 2;
    info_.mean = {0.0F};
    info_.std = {1.0F / 255};
  }

  [[nodiscard]] const DatasetInfo& info() const override { return info_; }
  int64_t load(int64_t index, Image& image) const override {
    ++calls;
    check(index != bad_index, "counting", "image {} is broken", index);
    // Some take longer than others, so that workers overtake each other.
    std::this_thread::sleep_for(std::chrono::microseconds((index * 37) % 5 * 20));
    image.set_size(info_.height, info_.width, info_.channels);
    std::fill(image.pixels.begin(), image.pixels.end(), static_cast<uint8_t>(index % 251));
    return index;
  }

  int64_t bad_index = -1;
  mutable std::atomic<int64_t> calls = 0;

 private:
  DatasetInfo info_;
};

Transform transform_of(const Dataset& dataset, bool augment = false) {
  return Transform(dataset.info(), {.image_size = 6, .channels = 2, .augment = augment});
}

struct Taken {
  std::vector<std::vector<int64_t>> labels;  // by batch
  std::vector<std::vector<float>> images;
  std::vector<std::array<int64_t, 3>> places;  // epoch, index, step

  friend bool operator==(const Taken&, const Taken&) = default;
};

Taken take_all(Loader& loader) {
  Taken taken;
  while (const std::optional<Batch> batch = loader.next()) {
    taken.labels.push_back(batch->labels.to_vector<int64_t>());
    taken.images.push_back(batch->images.to_vector<float>());
    taken.places.push_back({batch->epoch, batch->index, batch->step});
  }
  return taken;
}

Taken take_all(const std::shared_ptr<const Dataset>& dataset, const LoaderOptions& options, bool augment = false) {
  Loader loader(dataset, transform_of(*dataset, augment), options);
  return take_all(loader);
}

std::vector<int64_t> joined(const std::vector<std::vector<int64_t>>& parts) {
  std::vector<int64_t> all;
  for (const auto& part : parts) {
    all.insert(all.end(), part.begin(), part.end());
  }
  return all;
}

}  // namespace

TEST_CASE("loader: repeats of an image follow each other, augmented anew, in an epoch as long as without") {
  const auto dataset = std::make_shared<Counting>(20);
  const LoaderOptions once{.batch_size = 5, .shuffle = true, .epochs = 2, .seed = 3};
  LoaderOptions thrice = once;
  thrice.repeats = 3;
  const Taken plain = take_all(dataset, once, /* augment= */ true);
  const Taken repeated = take_all(dataset, thrice, /* augment= */ true);
  CHECK(repeated.places == plain.places);
  const std::vector<int64_t> order = joined(plain.labels);
  const std::vector<int64_t> labels = joined(repeated.labels);
  REQUIRE(labels.size() == order.size());
  std::set<std::vector<float>> pictures;  // of the first image
  for (size_t i = 0; i < labels.size(); ++i) {
    CHECK(labels[i] == order[i / 20 * 20 + i % 20 / 3]);
  }
  const size_t size = repeated.images[0].size() / 5;
  for (size_t i = 0; i < 3; ++i) {
    const auto begin = repeated.images[0].begin() + static_cast<int64_t>(i * size);
    pictures.insert(std::vector<float>(begin, begin + static_cast<int64_t>(size)));
  }
  CHECK(pictures.size() > 1);
  // The same for any number of workers, from any batch on, and for endless datasets.
  thrice.num_workers = 3;
  CHECK((take_all(dataset, thrice, true) == repeated));
  thrice.first_step = 5;
  const Taken rest = take_all(dataset, thrice, true);
  CHECK((rest.images == std::vector(repeated.images.begin() + 5, repeated.images.end())));
  const Taken endless =
      take_all(std::make_shared<Counting>(6, /* endless= */ true), {.batch_size = 6, .epochs = 2, .repeats = 2});
  CHECK((endless.labels == std::vector<std::vector<int64_t>>{{0, 0, 1, 1, 2, 2}, {6, 6, 7, 7, 8, 8}}));
  CHECK(error_of([&] { Loader(dataset, transform_of(*dataset), {.repeats = 0}); }) ==
        "loader: repeats: expected a whole number from 1 to 64, got 0");
}

TEST_CASE("loader: batches in order, the last one smaller") {
  const auto dataset = std::make_shared<const Counting>(7);
  Loader loader(dataset, transform_of(*dataset), {.batch_size = 3});
  CHECK(loader.batches_per_epoch() == 3);
  CHECK(loader.num_steps() == 3);
  CHECK(loader.num_images() == 7);
  const Taken taken = take_all(loader);
  CHECK(taken.labels == std::vector<std::vector<int64_t>>{{0, 1, 2}, {3, 4, 5}, {6}});
  CHECK(taken.places == std::vector<std::array<int64_t, 3>>{{0, 0, 0}, {0, 1, 1}, {0, 2, 2}});
  CHECK_FALSE(loader.next().has_value());  // and again
}

TEST_CASE("loader: sizes, dtypes and memory format of a batch") {
  const auto dataset = std::make_shared<const Counting>(5);
  Tensor values[2];
  for (const MemoryFormat format : {MemoryFormat::contiguous, MemoryFormat::channels_last}) {
    Loader loader(dataset, transform_of(*dataset, /* augment= */ true), {.batch_size = 5, .seed = 3, .format = format});
    const Batch batch = loader.next().value();
    CHECK(batch.images.sizes() == Sizes{5, 2, 6, 6});
    CHECK(batch.images.dtype() == DType::float32);
    CHECK(batch.images.is_contiguous(format));
    CHECK(batch.images.suggest_memory_format() == format);
    CHECK(batch.labels.sizes() == Sizes{5});
    CHECK(batch.labels.dtype() == DType::int64);
    values[format == MemoryFormat::contiguous ? 0 : 1] = batch.images;
  }
  CHECK(norma::test::max_difference(values[0], values[1]) <= 0);
}

TEST_CASE("loader: contents do not depend on the number of threads") {
  const auto dataset = std::make_shared<const Counting>(23);
  LoaderOptions options{.batch_size = 4, .shuffle = true, .epochs = 3, .seed = 11, .num_workers = 0};
  const Taken expected = take_all(dataset, options, /* augment= */ true);
  CHECK(expected.labels.size() == 18);
  for (const int workers : {1, 3}) {
    for (const int64_t prefetch : {1, 2, 5}) {
      CAPTURE(workers);
      CAPTURE(prefetch);
      options.num_workers = workers;
      options.prefetch = prefetch;
      CHECK(take_all(dataset, options, /* augment= */ true) == expected);
    }
  }
}

TEST_CASE("loader: epochs of one batch with many threads ahead") {
  const auto dataset = std::make_shared<const Counting>(3);
  LoaderOptions options{.batch_size = 3, .shuffle = true, .epochs = 40, .num_workers = 0, .prefetch = 8};
  const Taken expected = take_all(dataset, options);
  options.num_workers = 4;
  CHECK(take_all(dataset, options) == expected);
}

TEST_CASE("loader: shuffling shows every image once per epoch, in an order given by seed and epoch") {
  const auto dataset = std::make_shared<const Counting>(50);
  const LoaderOptions options{.batch_size = 50, .shuffle = true, .epochs = 2, .seed = 1};
  const Taken taken = take_all(dataset, options);
  REQUIRE(taken.labels.size() == 2);
  for (const auto& epoch : taken.labels) {
    CHECK(std::set(epoch.begin(), epoch.end()).size() == 50);
    CHECK_FALSE(std::is_sorted(epoch.begin(), epoch.end()));
  }
  CHECK(taken.labels[0] != taken.labels[1]);
  CHECK(take_all(dataset, options) == taken);
  LoaderOptions other = options;
  other.seed = 2;
  CHECK(take_all(dataset, other).labels[0] != taken.labels[0]);
}

TEST_CASE("loader: shuffling is even") {
  const auto dataset = std::make_shared<const Counting>(4);
  const Taken taken = take_all(dataset, {.batch_size = 4, .shuffle = true, .epochs = 2400, .num_workers = 0});
  std::map<std::vector<int64_t>, int> counts;
  for (const auto& epoch : taken.labels) {
    ++counts[epoch];
  }
  CHECK(counts.size() == 24);
  for (const auto& [order, count] : counts) {
    CHECK(count > 50);  // 100 are expected, with a standard deviation of 10
    CHECK(count < 150);
  }
}

TEST_CASE("loader: dropping the last batch") {
  const auto dataset = std::make_shared<const Counting>(7);
  const Taken taken = take_all(dataset, {.batch_size = 3, .drop_last = true, .epochs = 2});
  CHECK(taken.labels == std::vector<std::vector<int64_t>>{{0, 1, 2}, {3, 4, 5}, {0, 1, 2}, {3, 4, 5}});
  CHECK(taken.places.back() == std::array<int64_t, 3>{1, 1, 3});
}

TEST_CASE("loader: a run of a fixed number of images over several epochs") {
  const auto dataset = std::make_shared<const Counting>(7);
  SUBCASE("ends within a batch") {
    const LoaderOptions options{.batch_size = 3, .total_images = 11};
    Loader loader(dataset, transform_of(*dataset), options);
    CHECK(loader.num_steps() == 5);
    CHECK(loader.num_images() == 11);
    CHECK(take_all(loader).labels == std::vector<std::vector<int64_t>>{{0, 1, 2}, {3, 4, 5}, {6}, {0, 1, 2}, {3}});
  }
  SUBCASE("ends with an epoch") {
    CHECK(joined(take_all(dataset, {.batch_size = 3, .total_images = 14}).labels).size() == 14);
  }
  SUBCASE("less than an epoch") {
    CHECK(take_all(dataset, {.batch_size = 3, .total_images = 4}).labels ==
          std::vector<std::vector<int64_t>>{{0, 1, 2}, {3}});
  }
  SUBCASE("without smaller batches") {
    const LoaderOptions options{.batch_size = 3, .drop_last = true, .total_images = 11};
    Loader loader(dataset, transform_of(*dataset), options);
    CHECK(loader.num_images() == 9);  // 6 an epoch, and 3 of the remaining 5
    CHECK(loader.num_steps() == 3);
    CHECK(take_all(loader).labels == std::vector<std::vector<int64_t>>{{0, 1, 2}, {3, 4, 5}, {0, 1, 2}});
  }
}

TEST_CASE("loader: starting in the middle gives what would have followed") {
  const auto dataset = std::make_shared<const Counting>(10);
  LoaderOptions options{.batch_size = 4, .shuffle = true, .epochs = 3, .seed = 5};
  const Taken whole = take_all(dataset, options, /* augment= */ true);
  REQUIRE(whole.labels.size() == 9);
  for (const int64_t first : {0, 1, 3, 4, 8, 9}) {
    CAPTURE(first);
    options.first_step = first;
    const Taken rest = take_all(dataset, options, /* augment= */ true);
    CHECK(rest.labels == std::vector(whole.labels.begin() + first, whole.labels.end()));
    CHECK(rest.images == std::vector(whole.images.begin() + first, whole.images.end()));
    CHECK(rest.places == std::vector(whole.places.begin() + first, whole.places.end()));
  }
}

TEST_CASE("loader: an endless dataset shows new images in every epoch") {
  const auto dataset = std::make_shared<const Counting>(4, /* endless= */ true);
  CHECK(joined(take_all(dataset, {.batch_size = 3, .shuffle = true, .epochs = 2}).labels) ==
        std::vector<int64_t>{0, 1, 2, 3, 4, 5, 6, 7});
}

TEST_CASE("loader: an exception arrives with its batch, and stays") {
  for (const int workers : {0, 1, 3}) {
    CAPTURE(workers);
    auto dataset = std::make_shared<Counting>(20);
    dataset->bad_index = 9;
    Loader loader(dataset, transform_of(*dataset), {.batch_size = 4, .num_workers = workers});
    CHECK(loader.next().has_value());
    CHECK(loader.next().has_value());
    CHECK(error_of([&] { loader.next(); }) == "counting: image 9 is broken");
    CHECK(error_of([&] { loader.next(); }) == "counting: image 9 is broken");
  }
}

TEST_CASE("loader: threads stop when it is left early, and stay within the prefetch limit") {
  const auto dataset = std::make_shared<const Counting>(100000);
  for (const int workers : {1, 3}) {
    for (const int taken : {0, 1, 5}) {
      const int64_t before = dataset->calls;
      {
        Loader loader(dataset, transform_of(*dataset), {.batch_size = 2, .num_workers = workers, .prefetch = 3});
        for (int i = 0; i < taken; ++i) {
          CHECK(loader.next().has_value());
        }
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
      }
      const int64_t after = dataset->calls;
      CHECK(after - before <= 2 * (taken + 3));
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
      CHECK(dataset->calls == after);
    }
  }
}

TEST_CASE("loader: can be moved while it runs") {
  const auto dataset = std::make_shared<const Counting>(10);
  Loader first(dataset, transform_of(*dataset), {.batch_size = 5});
  CHECK(first.next().has_value());
  Loader second = std::move(first);
  CHECK(second.next().value().labels.to_vector<int64_t>() == std::vector<int64_t>{5, 6, 7, 8, 9});
}

TEST_CASE("loader: bad options, each with its error") {
  const auto dataset = std::make_shared<const Counting>(7);
  const auto error_for = [&](const LoaderOptions& options) {
    return error_of([&] { Loader(dataset, transform_of(*dataset), options); });
  };
  CHECK(error_of([&] { Loader(nullptr, transform_of(*dataset)); }) == "loader: dataset: expected a dataset, got none");
  CHECK(error_for({.batch_size = 0}) == "loader: batch_size: expected a whole number from 1 to 1048576, got 0");
  CHECK(error_for({.epochs = 0}) == "loader: epochs: expected a whole number from 1 to 1317624576693539401, got 0");
  CHECK(error_for({.total_images = -1}) == "loader: total_images: expected at least 0, got -1");
  CHECK(error_for({.num_workers = -1}) == "loader: num_workers: expected a whole number from 0 to 256, got -1");
  CHECK(error_for({.prefetch = 0}) == "loader: prefetch: expected a whole number from 1 to 65536, got 0");
  CHECK(error_for({.first_step = -1}) == "loader: first_step: expected at least 0, got -1");
  CHECK(error_for({.batch_size = 3, .first_step = 4}) == "loader: first_step: expected at most 3, got 4");
  CHECK(error_for({.batch_size = 8, .drop_last = true}) ==
        "loader: batch_size: expected at most 7, the images of counting, to drop the last batch, got 8");
  CHECK(error_for({.batch_size = 5, .drop_last = true, .total_images = 4}) ==
        "loader: total_images: expected at least 5, a batch, to drop the last one, got 4");
}

TEST_CASE("loader: batches of bytes become the images that others have, with the same bits") {
  const auto dataset = data::make_dataset("shapes", {.split = Split::train, .image_size = 24});
  const TransformOptions transform{
      .image_size = 28, .augment = true, .augmentation = {.hflip = 0.5, .color_jitter = {.brightness = 0.4}}};
  for (const MemoryFormat format : {MemoryFormat::contiguous, MemoryFormat::channels_last}) {
    for (const MixOptions& mix : {MixOptions{}, MixOptions{.mixup_alpha = 0.8}, MixOptions{.cutmix_alpha = 1}}) {
      LoaderOptions options{.batch_size = 5, .total_images = 15, .mix = mix, .format = format};
      Loader floats(dataset, Transform(dataset->info(), transform), options);
      options.bytes = true;
      Loader bytes(dataset, Transform(dataset->info(), transform), options);
      while (const auto expected = floats.next()) {
        const Batch got = bytes.next().value();
        CHECK(got.images.dtype() == DType::uint8);
        CHECK(got.images.is_contiguous(format));
        CHECK(images_on(*expected, kCpu).to_vector<float>() == expected->images.to_vector<float>());
        CHECK(images_on(got, kCpu).to_vector<float>() == expected->images.to_vector<float>());
        CHECK(to_device(images_on(got, kCudaEmulated), kCpu).to_vector<float>() == expected->images.to_vector<float>());
        CHECK(got.labels.to_vector<int64_t>() == expected->labels.to_vector<int64_t>());
        CHECK(got.targets.defined() == expected->targets.defined());
      }
    }
  }
  CHECK(error_of([&] {
          Loader(dataset, Transform(dataset->info(), {.augmentation = {.erasing = {.probability = 0.25}}}),
                 {.bytes = true});
        }) == "loader: bytes: expected a transform without random erasing, got one of probability 0.25");
}

TEST_CASE("loader: the parts of several processes are the batches of one, also mixed") {
  const auto dataset = std::make_shared<Counting>(23);
  for (const std::string mix : {"", "mixup", "both"}) {
    CAPTURE(mix);
    const bool mixed = !mix.empty();
    LoaderOptions options{.batch_size = 7, .shuffle = true, .epochs = 2, .repeats = 2, .seed = 5};
    if (mixed) {
      options.mix = {.mixup_alpha = 0.4, .cutmix_alpha = mix == "both" ? 1.0 : 0.0};
    }
    for (const int64_t parts : {2, 3, 8}) {  // the last batch of an epoch has 2 images
      CAPTURE(parts);
      Loader whole(dataset, transform_of(*dataset, /* augment= */ true), options);
      std::vector<Loader> loaders;
      for (int64_t number = 0; number < parts; ++number) {
        LoaderOptions own = options;
        own.part = {.number = number, .parts = parts};
        loaders.emplace_back(dataset, transform_of(*dataset, /* augment= */ true), own);
      }
      while (const std::optional<Batch> batch = whole.next()) {
        std::vector<int64_t> labels;
        std::vector<float> images;
        std::vector<float> targets;
        for (Loader& loader : loaders) {
          const std::optional<Batch> part = loader.next();
          REQUIRE(part);
          CHECK(part->total == batch->labels.numel());
          CHECK(part->first == static_cast<int64_t>(labels.size()));
          CHECK(part->images.size(0) == part->labels.numel());
          CHECK(part->step == batch->step);
          const auto append = [](auto& to, const auto& from) { to.insert(to.end(), from.begin(), from.end()); };
          append(labels, part->labels.to_vector<int64_t>());
          append(images, part->images.to_vector<float>());
          if (mixed) {
            append(targets, part->targets.to_vector<float>());
          }
        }
        CHECK(labels == batch->labels.to_vector<int64_t>());
        CHECK(images == batch->images.to_vector<float>());
        if (mixed) {
          CHECK(targets == batch->targets.to_vector<float>());
        }
      }
      for (Loader& loader : loaders) {
        CHECK_FALSE(loader.next());
      }
    }
  }
  const auto error = [&](const LoaderPart& part, const LoaderOptions& others) {
    LoaderOptions options = others;
    options.part = part;
    return error_of([&] { Loader(dataset, transform_of(*dataset), options); });
  };
  CHECK(error({.number = 2, .parts = 2}, {}) == "loader: part: expected one of 0 to parts - 1, got 2 of 2");
  CHECK(error({.number = 0, .parts = 0}, {}) == "loader: part: expected one of 0 to parts - 1, got 0 of 0");
  CHECK(error({.number = 0, .parts = 2}, {.mix = {.mixup_alpha = 1}, .bytes = true}) ==
        "loader: part: expected no bytes where images are mixed, got both");
}
