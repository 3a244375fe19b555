#include "core/factory.h"
#include "data/image_file.h"
#include "data/safetensors.h"
#include "data/tensor_file.h"
#include "lab/report/merged.h"
#include "lab/studies/study.h"
#include "train/checkpoint.h"
#include "train/recipe.h"

#include <elf.h>
#include <link.h>
#include <zlib.h>

#include <array>
#include <bit>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>

// seeds FOLDER: writes what each fuzz program begins with into FOLDER/NAME.

using namespace norma;

namespace {

void write(const std::filesystem::path& file, const std::string& bytes) {
  std::filesystem::create_directories(file.parent_path());
  std::ofstream(file, std::ios::binary) << bytes;
}

std::string read(const std::filesystem::path& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

lab::Comparison comparison() {
  lab::Comparison comparison{.environment = train::environment(), .command = "norma compare", .date = "today"};
  comparison.recipe.patch_size = 2;
  lab::Cell finished;
  finished.model = "resnet18";
  finished.norm = "batch";
  finished.state = lab::CellState::finished;
  finished.losses = {2.5, 1.25};
  lab::Telemetry telemetry;
  telemetry.losses = {{.step = 1, .seconds = 0.5, .loss = 2}};
  telemetry.tests = {{.step = 1, .seconds = 0.75, .loss = 2, .accuracy = 0.5}};
  telemetry.step_time = {.samples = 1, .forward = 1, .backward = 2, .optimizer = 0.5};
  telemetry.step_time.forward_split = {.norm = 0.25, .convolution = 0.5, .product = 0.125, .rest = 0.125};
  telemetry.step_time.backward_split = telemetry.step_time.forward_split;
  telemetry.saved = {{.layer = "bn1", .kind = lab::LayerKind::norm, .bytes = 4096}};
  telemetry.ledger = {{.op = "to", .layer = "bn1", .from = "contiguous", .to = "strided", .count = 1, .bytes = 64}};
  telemetry.ledger_known = true;
  lab::LayerHealth layer{.layer = "bn1", .kind = lab::LayerKind::norm};
  layer.gamma = {.min = 1, .max = 2, .mean = 1.5, .deviation = 0.5};
  const lab::DynamicsSample dynamics{
      .lr = 0.5,
      .layers = {{.layer = "bn1", .kind = lab::LayerKind::norm, .gradient_norm = 1, .saturation = 0.25}},
      .sharpness = lab::Sharpness{.value = 2, .change = 0.125, .products = 3, .seconds = 0.5}};
  telemetry.health = {{.step = 1, .layers = {layer}, .dynamics = dynamics}};
  comparison.dynamics = {.gradients = true, .sharpness = true};
  finished.telemetry = telemetry;
  lab::Cell failed = finished;
  failed.norm = "group:7";
  failed.state = lab::CellState::failed;
  failed.reason = "no";
  comparison.cells = {finished, failed};
  return comparison;
}

/// The tables of a shared library for this machine: two segments, which are the whole file, and one section.
std::string library() {
  struct Tables {
    ElfW(Ehdr) head{};
    std::array<ElfW(Phdr), 2> segments{};
    ElfW(Shdr) section{};
  } tables;
  ElfW(Ehdr)& head = tables.head;
  std::memcpy(head.e_ident, ELFMAG, SELFMAG);
  head.e_ident[EI_CLASS] = sizeof(ElfW(Addr)) == 8 ? ELFCLASS64 : ELFCLASS32;
  head.e_ident[EI_DATA] = std::endian::native == std::endian::little ? ELFDATA2LSB : ELFDATA2MSB;
  head.e_type = ET_DYN;
  head.e_phoff = offsetof(Tables, segments);
  head.e_phentsize = sizeof(ElfW(Phdr));
  head.e_phnum = tables.segments.size();
  head.e_shoff = offsetof(Tables, section);
  head.e_shentsize = sizeof(ElfW(Shdr));
  head.e_shnum = 1;
  for (ElfW(Phdr) & segment : tables.segments) {
    segment.p_type = PT_LOAD;
    segment.p_filesz = sizeof tables;
  }
  return {reinterpret_cast<const char*>(&tables), sizeof tables};
}

void write_seeds(const std::filesystem::path& folder) {
  const data::NamedTensors tensors = {{"layer1.0.conv1.weight", ones({2, 3, 1, 1})},
                                      {"bn1.num_batches_tracked", full({}, 3, {.dtype = DType::int64})},
                                      {"mask", zeros({2}, {.dtype = DType::boolean})}};
  std::filesystem::create_directories(folder / "safetensors");
  data::save_safetensors(folder / "safetensors/tensors", tensors, {{"key", "value"}});
  write(folder / "npy/array.npy", data::npy_bytes(tensors.front().second));
  data::write_tensor_file(folder / "npy/archive.npz", tensors, {{"key", "value"}});
  std::filesystem::create_directories(folder / "checkpoint");
  train::save_checkpoint(folder / "checkpoint/checkpoint",
                         {.model = tensors,
                          .optimizer = {{"step", full({}, 3, {.dtype = DType::int64})}},
                          .step = 3,
                          .model_name = "resnet18",
                          .norm = "",
                          .options = {{"recipe", train::to_json(train::Recipe{})}}});

  const std::string labels = {0, 0, 8, 1, 0, 0, 0, 2, 5, 7};
  const std::string images = {0, 0, 8, 3, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 2, 1, 2, 3, 4};
  write(folder / "idx/labels", labels);
  write(folder / "idx/images", images);
  const std::filesystem::path packed = folder / "idx/packed";
  gzFile out = gzopen(packed.c_str(), "wb");
  gzwrite(out, images.data(), static_cast<unsigned>(images.size()));
  gzclose(out);
  write(folder / "idx/packed_twice", read(packed) + read(packed));

  std::filesystem::create_directories(folder / "image");
  data::write_png(folder / "image/image.png", {.height = 1, .width = 2, .channels = 3, .pixels = {1, 2, 3, 4, 5, 6}});
  data::write_png(folder / "image/grey.png", {.height = 2, .width = 1, .channels = 1, .pixels = {7, 8}});
  write(folder / "image/image.pgm", "P5\n2 1\n255\nab");
  write(folder / "image/image.bmp",  // 1 x 1 pixel of 24 bits
        std::string("BM\0\0\0\0\0\0\0\0\x36\0\0\0\x28\0\0\0\1\0\0\0\1\0\0\0\1\0\x18\0", 30) + std::string(24, '\0') +
            "abc");

  for (const char* kept : {"/tests/reference/jpeg.safetensors", "/tests/reference/pictures.safetensors"}) {
    for (const auto& [name, x] : data::load_safetensors(std::string(NORMA_SOURCE_DIR) + kept).tensors) {
      if (name.ends_with(".file")) {
        const auto* bytes = x.data<uint8_t>();
        write(folder / "image" / name, std::string(bytes, bytes + x.numel()));
      }
    }
  }

  const data::Safetensors saved = data::load_safetensors(NORMA_SOURCE_DIR "/tests/reference/pytorch_files.safetensors");
  for (const auto& [name, x] : saved.tensors) {
    if (name.ends_with(".zip") || name.ends_with(".pickles") || name.ends_with(".protocol4")) {
      const auto* bytes = x.data<uint8_t>();
      write(folder / "pytorch_file" / name, std::string(bytes, bytes + x.numel()));
    }
  }

  write(folder / "norm_policy/policy",
        "# comment\n\"layer4.*\" = \"group:32[eps=1e-3]\"\n'bn1' = \"none\"\na.b = [{}]\n");
  write(folder / "cast_policy/policy", "\"conv2d\" = \"lower\"\n\"*_norm\" = \"float32\"\nrelu = \"keep\"\n");
  for (const lab::StudyFile& file : lab::study_files()) {
    write(folder / "study" / std::string(file.name), std::string(file.text));
  }
  write(folder / "norm_spec/spec", "batch[eps=1e-3,momentum=0.1,affine=false]");
  write(folder / "norm_spec/groups", "group/16");
  write(folder / "plugin/library", library());
  write(folder / "recipe/recipe", train::to_json(train::Recipe{}));
  write(folder / "comparison/comparison", lab::to_json(comparison()));
  write(folder / "comparison/merged", lab::to_json(lab::Parts{{"a", comparison()}, {"b", comparison()}}));
  write(folder / "metrics/log",
        "step,epoch,images,lr,loss,images_per_second,test_loss,test_accuracy\n1,0.5,4,0.001,2.5,3.1,,\n"
        "2,1,8,0.001,2.4,3.2,2.3,0.5\n5,2,16,0.001,2,3,,\n");
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    return 1;
  }
  write_seeds(argv[1]);
  return 0;
}
