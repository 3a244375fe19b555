#include "export/onnx.h"

#include "built_in_norm_names.h"
#include "error_text.h"
#include "export/networks.h"
#include "files.h"
#include "models/vit.h"
#include "nn/norm/convert.h"
#include "nn/sequential.h"
#include "ops/attention/attention.h"
#include "ops/pointwise/pointwise.h"
#include "ops/reduce/reduce.h"
#include "ops/shape/copy.h"
#include "ops/shape/view.h"
#include "support.h"

#include <fmt/format.h>
#include <onnx/onnx_pb.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

// What the files say. What they compute is compared in onnxruntime_test.py, with files that the last test case writes.

using namespace norma;
using test::SmallNetwork;

namespace {

onnx::ModelProto exported(nn::Module& network, const Tensor& example, const OnnxOptions& options = {}) {
  onnx::ModelProto model;
  REQUIRE(model.ParseFromString(export_onnx(network, example, options).bytes));
  return model;
}

std::map<std::string, int> types_of(const onnx::ModelProto& model) {
  std::map<std::string, int> counts;
  for (const onnx::NodeProto& node : model.graph().node()) {
    ++counts[node.op_type()];
  }
  return counts;
}

Tensor images(int64_t count = 2, int64_t size = 24) {
  Generator generator(3);
  return randn({count, 3, size, size + 4}, {.device = kCpu}, generator);
}

/// A network of one function.
class Function : public nn::Module {
 public:
  explicit Function(std::function<Tensor(const Tensor&)> f) : f_(std::move(f)) {}
  Tensor forward(const Tensor& x) override { return f_(x); }
  [[nodiscard]] std::string name() const override { return "Function"; }

 private:
  std::function<Tensor(const Tensor&)> f_;
};

std::string refusal(const std::function<Tensor(const Tensor&)>& f, const OnnxOptions& options = {}) {
  Function network(f);
  return test::error_of([&] { export_onnx(network, images(), options); });
}

}  // namespace

TEST_CASE("onnx: norms are ONNX's own where those mean the same") {
  struct Case {
    const char* norm;
    int64_t opset;
    const char* type;
  };
  for (const Case& of :
       {Case{"batch", 18, "BatchNormalization"}, Case{"frozen_batch", 18, "BatchNormalization"},
        Case{"ghost_batch", 18, "BatchNormalization"}, Case{"batch_renorm", 18, "BatchNormalization"},
        Case{"instance[track_running_stats=true]", 18, "BatchNormalization"},
        Case{"instance", 18, "InstanceNormalization"}, Case{"layer2d", 18, "LayerNormalization"},
        Case{"group:4", 21, "GroupNormalization"}, Case{"group:1", 21, "GroupNormalization"},
        Case{"group:4", 18, "InstanceNormalization"}, Case{"rms2d", 23, "RMSNormalization"},
        Case{"rms2d[offset=true]", 23, "RMSNormalization"}, Case{"layer2d", 23, "LayerNormalization"}}) {
    CAPTURE(of.norm);
    SmallNetwork network(of.norm);
    test::stir(network, {4, 3, 24, 28});
    std::map<std::string, int> types = types_of(exported(network, images(), {.opset = of.opset}));
    CHECK(types[of.type] == 3);
    CHECK(types["ReduceMean"] == 0);
  }
}

TEST_CASE("onnx: group norm of opset 21 and RMS norm of 23 are computed in the dtype of the network") {
  for (const auto& [norm, dtype] : {std::pair{"group:4", DType::float32}, std::pair{"group:4", DType::float64},
                                    std::pair{"rms2d", DType::float32}, std::pair{"rms2d", DType::float64}}) {
    const bool is_group = std::string_view(norm) == "group:4";
    SmallNetwork network(norm);
    network.to(dtype);
    const onnx::ModelProto model = exported(network, to(images(), dtype), {.opset = is_group ? 21 : 23});
    const std::string type = is_group ? "GroupNormalization" : "RMSNormalization";
    const int64_t expected = dtype == DType::float64 ? onnx::TensorProto::DOUBLE : onnx::TensorProto::FLOAT;
    int found = 0;
    for (const onnx::NodeProto& node : model.graph().node()) {
      for (const onnx::AttributeProto& attribute : node.attribute()) {
        found += node.op_type() == type && attribute.name() == "stash_type" && attribute.i() == expected ? 1 : 0;
      }
    }
    CHECK(found == 3);
  }
}

TEST_CASE("onnx: other norms are plain ops, which say what they stand for") {
  for (const char* const norm : {"rms2d", "simple2d", "frn", "grn", "evonorm_s0:4", "rms2d[offset=true]",
                                 "rms2d[groups=4]", "seednorm[offset=true]"}) {
    CAPTURE(norm);
    SmallNetwork network(norm);
    test::stir(network, {4, 3, 24, 28});
    CHECK(types_of(exported(network, images()))["ReduceMean"] >= 3);
  }
  SmallNetwork network("rms2d");
  const onnx::ModelProto model = exported(network, images());
  bool said = false;
  for (const onnx::NodeProto& node : model.graph().node()) {
    said = said || node.doc_string().find("rms_norm_2d, of which ONNX has no op before opset 23") != std::string::npos;
  }
  CHECK(said);
}

TEST_CASE("onnx: input, output, names, versions, metadata, and only what is needed") {
  SmallNetwork network("batch");
  OnnxModel file = export_onnx(network, images(), {.opset = 21});
  add_metadata(file, "norma.recipe", "x = 1");
  add_metadata(file, "norma.largest_error", "0");
  onnx::ModelProto model;
  REQUIRE(model.ParseFromString(file.bytes));
  CHECK(model.ir_version() == 10);
  CHECK(model.opset_import(0).version() == 21);
  CHECK(model.producer_name() == "norma");
  CHECK(model.metadata_props_size() == 2);
  CHECK(model.metadata_props(0).key() == "norma.recipe");
  CHECK(model.metadata_props(0).value() == "x = 1");
  CHECK(model.metadata_props(1).key() == "norma.largest_error");
  const onnx::GraphProto& graph = model.graph();
  CHECK(graph.input(0).name() == "input");
  CHECK(graph.output(0).name() == "output");
  const auto dim = [](const onnx::ValueInfoProto& info, int axis) {
    return info.type().tensor_type().shape().dim(axis);
  };
  CHECK(dim(graph.input(0), 0).dim_value() == 2);
  CHECK(dim(graph.input(0), 3).dim_value() == 28);
  CHECK(dim(graph.output(0), 1).dim_value() == 5);
  std::map<std::string, int64_t> constants;
  for (const onnx::TensorProto& constant : graph.initializer()) {
    constants[constant.name()] = constant.dims_size();
  }
  for (const auto& [name, x] : network.state_dict()) {
    CHECK_MESSAGE(constants.contains(name) == (name.find("num_batches_tracked") == std::string::npos), name);
  }
  std::set<std::string> values{"input"};
  for (const auto& [name, rank] : constants) {
    values.insert(name);
  }
  for (const onnx::NodeProto& node : graph.node()) {  // in an order in which they can be computed
    for (const std::string& input : node.input()) {
      CHECK_MESSAGE((input.empty() || values.contains(input)), node.name());
    }
    values.insert(node.output().begin(), node.output().end());
  }
  const onnx::ModelProto dynamic = exported(network, images(), {.dynamic_batch = true});
  CHECK(dim(dynamic.graph().input(0), 0).dim_param() == "batch");
  CHECK(dim(dynamic.graph().output(0), 0).dim_param() == "batch");
}

TEST_CASE("onnx: the mode of the network, folded batch norms, transposes that cancel") {
  SmallNetwork network("batch");
  network.train();
  exported(network, images());
  CHECK(network.is_training());
  const auto resnet = models::create_model("resnet18", {.num_classes = 3, .small_stem = true});
  test::stir(*resnet, {2, 3, 32, 32});
  nn::fold_batch_norm(*resnet, images(2, 32));
  std::map<std::string, int> types = types_of(exported(*resnet, images(2, 32)));
  CHECK(types["BatchNormalization"] == 0);
  CHECK(types["Conv"] == 20);
  Function twice([](const Tensor& x) { return mul(permute(permute(x, {0, 2, 3, 1}), {0, 3, 1, 2}), 2); });
  CHECK(types_of(exported(twice, images()))["Transpose"] == 0);
  Function once([](const Tensor& x) { return mul(permute(permute(x, {0, 2, 3, 1}), {0, 2, 3, 1}), 2); });
  CHECK(types_of(exported(once, images()))["Transpose"] == 1);
}

TEST_CASE("onnx: weights that are computed from weights are constants") {
  SmallNetwork network("none", "scaled_std_conv");
  std::map<std::string, int> types = types_of(exported(network, images()));
  CHECK(types["Conv"] == 2);
  CHECK(types["ReduceMean"] == 0);
}

TEST_CASE("onnx: weights in a second file have the bytes that they have in one file") {
  const auto network = models::create_model("resnet18", {.num_classes = 3, .small_stem = true});
  test::stir(*network, {2, 3, 32, 32});
  const onnx::ModelProto whole = exported(*network, images(2, 32));
  const OnnxModel split = export_onnx(*network, images(2, 32), {.data_file = "x.data"});
  CHECK(split.data_file == "x.data");
  onnx::ModelProto model;
  REQUIRE(model.ParseFromString(split.bytes));
  REQUIRE(model.graph().initializer_size() == whole.graph().initializer_size());
  size_t end = 0;
  for (int i = 0; i < whole.graph().initializer_size(); ++i) {
    const onnx::TensorProto& constant = model.graph().initializer(i);
    const std::string& bytes = whole.graph().initializer(i).raw_data();
    CAPTURE(constant.name());
    CHECK(constant.name() == whole.graph().initializer(i).name());
    if (bytes.size() < 1024) {
      CHECK(constant.raw_data() == bytes);
      CHECK(constant.external_data_size() == 0);
      continue;
    }
    std::map<std::string, std::string> entries;
    for (const onnx::StringStringEntryProto& entry : constant.external_data()) {
      entries[entry.key()] = entry.value();
    }
    CHECK(constant.data_location() == onnx::TensorProto::EXTERNAL);
    CHECK(constant.raw_data().empty());
    CHECK(entries["location"] == "x.data");
    const size_t offset = std::stoul(entries["offset"]);
    CHECK(offset % 4096 == 0);
    CHECK(offset >= end);
    CHECK(std::stoul(entries["length"]) == bytes.size());
    CHECK(split.data.compare(offset, bytes.size(), bytes) == 0);
    end = offset + bytes.size();
  }
  CHECK(end == split.data.size());
  CHECK(end > 40'000'000);

  Function small([](const Tensor& x) { return mul(x, 2); });  // without large constants there is no second file
  CHECK(export_onnx(small, images(), {.data_file = "x.data"}).data_file.empty());
}

TEST_CASE("onnx: parameters that are called like values of the graph") {
  class Names : public nn::Module {
   public:
    explicit Names(const std::vector<std::string>& names) {
      for (const std::string& name : names) {
        factors_.push_back(register_parameter(name, full({}, static_cast<double>(factors_.size() + 2))));
      }
    }
    Tensor forward(const Tensor& x) override {
      Tensor y = x;
      for (const Tensor& factor : factors_) {
        y = mul(y, factor);
      }
      return y;
    }
    [[nodiscard]] std::string name() const override { return "Names"; }

   private:
    Tensors factors_;
  };
  Names network({"input", "output", "output_1", "Mul_1", "scale"});
  const onnx::ModelProto model = exported(network, images());
  std::set<std::string> values{model.graph().input(0).name()};
  std::set<std::string> constants;
  for (const onnx::TensorProto& constant : model.graph().initializer()) {
    CHECK_MESSAGE(values.insert(constant.name()).second, constant.name());
    constants.insert(constant.name());
  }
  CHECK(constants == std::set<std::string>{"input_1", "output_1", "output_1_1", "Mul_1", "scale"});
  for (const onnx::NodeProto& node : model.graph().node()) {
    for (const std::string& input : node.input()) {
      CHECK_MESSAGE(values.contains(input), input);
    }
    for (const std::string& output : node.output()) {
      CHECK_MESSAGE(values.insert(output).second, output);
    }
  }
  CHECK(model.graph().output(0).name() == "output");
}

TEST_CASE("onnx: an empty slice with steps does not end behind the last element") {
  Function network(
      [](const Tensor& x) { return add(norma::sum(slice(x, 2, 0, 0, 3), Axes{2}), norma::sum(x, Axes{2})); });
  const onnx::ModelProto model = exported(network, images());
  for (const onnx::NodeProto& node : model.graph().node()) {
    for (const onnx::TensorProto& constant : model.graph().initializer()) {
      if (node.op_type() == "Slice" && constant.name() == node.input(2)) {
        int64_t end = -1;
        REQUIRE(constant.raw_data().size() == sizeof end);
        std::memcpy(&end, constant.raw_data().data(), sizeof end);
        CHECK(end == 0);  // below 0 it counts from the back
        return;
      }
    }
  }
  FAIL("there is no slice");
}

TEST_CASE("onnx: attention is products and a softmax, from opset 23 on an op unless it has a mask or float64") {
  for (const int64_t opset : {18, 21}) {
    Function causal([](const Tensor& x) { return scaled_dot_product_attention(x, x, x, {.causal = true}); });
    CHECK(types_of(exported(causal, images(), {.opset = opset})) ==
          std::map<std::string, int>{
              {"Add", 1}, {"Identity", 1}, {"MatMul", 2}, {"Mul", 1}, {"Softmax", 1}, {"Transpose", 1}});
  }
  Function plain([](const Tensor& x) { return scaled_dot_product_attention(x, x, x, {.scale = 0.5, .causal = true}); });
  const onnx::ModelProto model = exported(plain, images(), {.opset = 23});
  CHECK(types_of(model) == std::map<std::string, int>{{"Attention", 1}, {"Identity", 1}});
  CHECK(model.ir_version() == 11);
  CHECK(types_of(exported(plain, to(images(), DType::float64), {.opset = 23}))["Attention"] == 0);
  Function negative([](const Tensor& x) { return scaled_dot_product_attention(x, x, x, {.scale = -0.5}); });
  CHECK(types_of(exported(negative, images(), {.opset = 23}))["Attention"] == 0);
  Function masked([](const Tensor& x) {
    return scaled_dot_product_attention(x, x, x, {.mask = zeros({x.size(2), x.size(2)}, {.device = x.device()})});
  });
  CHECK(types_of(exported(masked, images(), {.opset = 23}))["Attention"] == 0);
}

TEST_CASE("onnx: what cannot be written is refused with the reason") {
  CHECK(refusal([](const Tensor& x) { return x; }, {.opset = 17}) == "export_onnx: opset: expected 18 to 23, got 17");
  CHECK(refusal([](const Tensor& x) { return x; }, {.data_file = "folder/x.data"}) ==
        "export_onnx: data_file: expected a name without a folder, got 'folder/x.data'");
  CHECK(refusal([](const Tensor& x) {
          Tensor y = mul(x, 2);
          add_(y, 1);
          return y;
        }) == "export_onnx: expected ops that ONNX has, got add_");
  CHECK(refusal([](const Tensor& x) { return mul(x, sum(x).to_vector<float>()[0]); }) ==
        "export_onnx: mul: number: expected the same value for every input");
  CHECK(refusal([](const Tensor& x) { return mul(x, full({}, sum(x).to_vector<float>()[0], {.device = kCpu})); }) ==
        "export_onnx: mul: input 1 depends on the input of the network by an op that is not described "
        "(core/trace.h)");
  CHECK(refusal([](const Tensor& x) {
          return sum(x).to_vector<float>()[0] > 0 ? neg(x) : abs(x);
        }).starts_with("export_onnx: expected the same ops for every input, got "));
  CHECK(refusal([](const Tensor& x) { return mul(flatten(x, 0, 1), 2); }, {.dynamic_batch = true}) ==
        "export_onnx: view: expected the images in the first axis for dynamic_batch, got sizes [6, 24, 28] and "
        "[9, 24, 28]");
  const auto unbiased = [](const Tensor& x) { return mul(x, var(x, {0, 2, 3}, {.keepdim = true})); };
  CHECK(refusal(unbiased, {.dynamic_batch = true}) ==
        "export_onnx: var: correction: expected 0 over the images for dynamic_batch, since its share depends on their "
        "number, got 1");
  CHECK(refusal(unbiased) == "no error");
  CHECK(refusal(
            [](const Tensor& x) {
              return mul(x, var(x, {2, 3}, {.keepdim = true}));
            },
            {.dynamic_batch = true}) == "no error");
  // A row for each image, all of one table.
  const Tensor table = randn({5, 1, 1, 1}, {.device = kCpu});
  CHECK(refusal([&](const Tensor& x) { return add(x, narrow(table, 0, 0, x.size(0))); }, {.dynamic_batch = true}) ==
        "export_onnx: add: input 1 depends on the input of the network by an op that is not described "
        "(core/trace.h)");
  CHECK(refusal([](const Tensor& x) { return ones_like(x).detach(); }) ==
        "export_onnx: expected an output that depends on the input by ops that are described (core/trace.h)");
  Function network([](const Tensor& x) { return x; });
  CHECK(test::error_of([&] { export_onnx(network, to(images(), DType::float16)); }) ==
        "export_onnx: example: expected float32 or float64, got float16");
  SmallNetwork halves("batch");
  halves.to(DType::bfloat16);
  CHECK(test::error_of([&] { export_onnx(halves, images()); }) ==
        "export_onnx: conv1.weight: expected the dtype of the example, float32, got bfloat16");
}

TEST_CASE("onnx: files of every norm, for onnxruntime") {
  // NORMA_ONNX_FILES is the folder in which onnxruntime_test.py looks for them.
  const test::TemporaryFolder temporary;
  const char* const given = std::getenv("NORMA_ONNX_FILES");
  const std::filesystem::path folder = given != nullptr ? std::filesystem::path(given) : temporary.path();
  nlohmann::json list = nlohmann::json::array();
  const auto write = [&](const std::string& name, nn::Module& network, const Tensor& x, int64_t opset) {
    CAPTURE(name);
    const std::string file = fmt::format("{}_{}", list.size(), opset);
    const std::string data_file = list.size() % 2 == 0 ? file + ".data" : "";
    const OnnxModel model = export_onnx(network, x, {.opset = opset, .dynamic_batch = true, .data_file = data_file});
    std::ofstream(folder / (file + ".onnx"), std::ios::binary) << model.bytes;
    if (!model.data_file.empty()) {
      std::ofstream(folder / model.data_file, std::ios::binary) << model.data;
    }
    const NoGradGuard no_grad;
    const Tensor own = network(x);
    network.to(DType::float64);
    const Tensor wide = network(to(x, DType::float64));
    network.to(DType::float32);
    list.push_back({{"name", fmt::format("{}, opset {}", name, opset)},
                    {"file", file + ".onnx"},
                    {"sizes", std::vector<int64_t>(x.sizes().begin(), x.sizes().end())},
                    {"input", x.to_vector<float>()},
                    {"own", own.to_vector<float>()},
                    {"expected", wide.to_vector<double>()}});
  };
  for (const std::string& name : test::built_in_norm_names()) {
    const bool groups = name == "group" || name == "evonorm_s0";
    for (const std::string& norm :
         groups ? std::vector<std::string>{name + ":4", name + ":1", name + ":16"} : std::vector<std::string>{name}) {
      SmallNetwork network(norm);
      test::stir(network, {4, 3, 24, 28});
      write(norm, network, images(), 18);
      write(norm, network, images(3), 21);
      if (name == "rms2d") {
        write(norm, network, images(3), 23);
      }
    }
  }
  for (const char* const conv : {"std_conv", "scaled_std_conv"}) {
    SmallNetwork network("none", conv);
    test::stir(network, {4, 3, 24, 28});
    write(conv, network, images(), 18);
  }
  for (const char* const model : {"resnet18", "convnext_atto", "convnextv2_atto"}) {
    const auto network = models::create_model(model, {.num_classes = 7});
    test::stir(*network, {2, 3, 64, 64});
    write(model, *network, images(2, 64), 20);
    if (std::string_view(model) == "resnet18") {
      nn::fold_batch_norm(*network, images(2, 64));
      write("resnet18, folded", *network, images(2, 64), 19);
    }
  }
  for (const char* const placement : {"pre", "post", "peri"}) {
    const std::string line = fmt::format("placement = \"{}\"", placement);
    const auto network = models::create_model(
        "convnext_atto", {.num_classes = 7, .norm_policy = nn::parse_norm_policy(line, "policy.toml")});
    test::stir(*network, {2, 3, 64, 64});
    write(fmt::format("convnext_atto, {}", placement), *network, images(2, 64), 18);
  }
  Generator generator(5);
  const Tensor squares = randn({2, 3, 16, 16}, {.device = kCpu}, generator);
  for (const char* const norm : {"layer2d", "batch", "group:4", "instance", "grn", "rms2d"}) {
    for (const bool rich : {false, true}) {
      const models::ModelOptions options{.num_classes = 7,
                                         .norm = norm,
                                         .patch_size = 4,
                                         .layer_scale = rich ? 0.5 : 0,
                                         .image_size = 16,
                                         .global_pool = rich ? "avg" : "token",
                                         .qk_norm = rich ? norm : ""};
      models::VisionTransformer network("vit", {.width = 24, .heads = 3, .depth = 2}, options);
      test::stir(network, squares.sizes());
      const std::string kind = fmt::format("vit, {}, {}", norm, rich ? "all options" : "plain");
      write(kind, network, squares, rich ? 21 : 18);
      if (rich) {
        write(kind, network, squares, 23);
      }
    }
  }
  std::vector<bool> sees(24 * 24);
  for (size_t i = 0; i < sees.size(); ++i) {
    sees[i] = i % 3 != 0 && i / 24 != 5;  // query 5 sees no key
  }
  const Tensor visible = from_vector<bool>(sees, {24, 24}, {.dtype = DType::boolean, .device = kCpu});
  const Tensor added = randn({3, 24, 24}, {.device = kCpu});
  for (const auto& [name, options] :
       std::map<std::string, AttentionOptions>{{"attention", {}},
                                               {"causal attention", {.scale = 0.4, .causal = true}},
                                               {"attention, bool mask", {.mask = visible}},
                                               {"attention, mask", {.mask = added}}}) {
    Function network([options = options](const Tensor& x) {
      const AttentionOptions wide{.scale = options.scale,
                                  .causal = options.causal,
                                  .mask = options.mask.defined() && options.mask.dtype() == DType::float32
                                              ? to(options.mask, x.dtype())
                                              : options.mask};
      return scaled_dot_product_attention(x, mul(x, -0.5), add(x, 1), wide);
    });
    write(name, network, images(), 18);
    write(name, network, images(3), 21);
    write(name, network, images(3), 23);
  }
  std::ofstream(folder / "list.json") << list;
  CHECK(list.size() >= 60);
}
