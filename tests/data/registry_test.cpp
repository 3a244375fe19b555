#include "data/dataset.h"
#include "files.h"

using namespace norma;
using namespace norma::data;
using norma::test::error_of;

namespace {

class OneImage final : public Dataset {
 public:
  OneImage() {
    info_.name = "one_image";
    info_.size = 1;
  }
  [[nodiscard]] const DatasetInfo& info() const override { return info_; }
  int64_t load(int64_t /*index*/, Image& /*image*/) const override { return 0; }

 private:
  DatasetInfo info_;
};

}  // namespace

TEST_CASE("datasets: an unknown name gets the nearest known one") {
  CHECK(error_of([] { make_dataset("fashion-mnist"); }) ==
        "unknown dataset 'fashion-mnist'; did you mean 'fashion_mnist'?");
  CHECK(error_of([] { dataset_description("shape"); }) == "unknown dataset 'shape'; did you mean 'shapes'?");
}

TEST_CASE("datasets: registering one") {
  const DatasetFactory factory = [](const DatasetOptions&) { return std::make_shared<const OneImage>(); };
  register_dataset("one_image", "a test's own", factory);
  CHECK(make_dataset("one_image")->info().size == 1);
  CHECK(dataset_description("one_image") == "a test's own");
  const std::vector<std::string> names = dataset_names();
  CHECK(names == std::vector<std::string>{"cifar10", "cifar100", "emnist_letters", "fashion_mnist", "idx",
                                          "imagefolder", "one_image", "shapes"});
  CHECK(error_of([&] { register_dataset("shapes", "", factory); }) == "register_dataset: name: 'shapes' is taken");
}
