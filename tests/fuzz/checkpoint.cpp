#include "train/checkpoint.h"

#include "fuzz.h"
#include "models/registry.h"
#include "session/trainer.h"
#include "train/weights.h"

using namespace norma;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const fuzz::MemoryFile file(fuzz::text_of(data, size));
  fuzz::read([&] { train::load_weights(file.path()); });
  fuzz::read([&] {
    const train::Checkpoint checkpoint = train::load_checkpoint(file.path());
    models::recognize_model(checkpoint.model);
    train::check_finite("fuzz", "file", checkpoint.model);
    train::check_recipe(train::recipe_of(checkpoint));
  });
  return 0;
}
