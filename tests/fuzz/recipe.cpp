#include "train/recipe.h"

#include "fuzz.h"

using namespace norma;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  fuzz::read([&] { train::check_recipe(train::recipe_from_json(std::string(fuzz::text_of(data, size)))); });
  return 0;
}
