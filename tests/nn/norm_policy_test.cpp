#include "nn/norm/policy.h"

#include "error_text.h"
#include "files.h"
#include "models/registry.h"
#include "nn/norm/norm.h"
#include "support.h"

#include <map>

using namespace norma;
using namespace norma::nn;
using norma::test::error_of;
using norma::test::TemporaryFolder;
using norma::test::write_file;

namespace {

std::map<std::string, std::string> norms_of(Module& model) {
  std::map<std::string, std::string> result;
  for (const auto& [path, module] : model.named_modules()) {
    if (dynamic_cast<Norm*>(module) != nullptr) {
      result[path] = module->name();
    }
  }
  return result;
}

std::string error_of_text(const std::string& text) {
  return error_of([&] { parse_norm_policy(text, "p.toml"); });
}

}  // namespace

TEST_CASE("norm policy: the rules of a file, in its order") {
  const NormPolicy policy = parse_norm_policy(
      "# a comment\n\"layer4.*\" = \"group:32\"\n\n\"bn1\" = \"layer2d[eps=1e-3]\"\na1 = 'none'\n", "p.toml");
  REQUIRE(policy.rules.size() == 3);
  CHECK(policy.rules[0].pattern == "layer4.*");
  CHECK(policy.rules[0].norm == "group:32");
  CHECK(policy.rules[0].line == 2);
  CHECK(policy.rules[1].pattern == "bn1");
  CHECK(policy.rules[2].pattern == "a1");
  CHECK(policy.rules[2].line == 5);
}

TEST_CASE("norm policy: error texts have line and column") {
  CHECK(error_of_text("\"bn1\" = \"batch\"\n\"layer1.* = \"none\"\n").starts_with("norm policy: p.toml:2:"));
  CHECK(error_of_text("\"bn1\" = 3\n") ==
        "norm policy: p.toml:1:9: 'bn1': expected a norm spec such as \"group:32\", got another type");
  CHECK(error_of_text("x = \"none\"\n  \"bn1\" = \"bath\"\n") ==
        "norm policy: p.toml:2:11: 'bn1': norm: unknown norm 'bath'; did you mean 'batch'?");
  CHECK(error_of_text("# nothing\n") == "norm policy: p.toml: expected lines \"pattern\" = \"norm\", got none");
  CHECK(error_of_text("\"bn1\" = \"batch\"\n\"bn1\" = \"none\"\n") ==
        "norm policy: p.toml:2:9: 'bn1': expected each pattern once, got it again");
  CHECK(
      error_of_text("layer1.0.bn1 = \"none\"\n") ==
      "norm policy: p.toml:1:1: 'layer1': expected a norm spec such as \"group:32\", got a table: a pattern with dots "
      "needs quotes, \"layer1.0.bn1\"");
  TemporaryFolder folder;
  CHECK(error_of([&] { read_norm_policy(folder / "absent.toml"); }) ==
        "norm policy: cannot open " + (folder / "absent.toml").string() + ": No such file or directory");
  norma::test::write_file(folder / "large", std::string((size_t{1} << 20) + 1, '\n'));
  CHECK(error_of([&] { read_norm_policy(folder / "large"); }) ==
        "norm policy: cannot open " + (folder / "large").string() + ": expected at most 1 MiB, got 1 MiB");
  CHECK(error_of([&] { read_norm_policy(folder.path()); }) ==
        "norm policy: cannot open " + folder.path().string() + ": expected a regular file, got a folder");
  write_file(folder / "p.toml", "\"bn1\" = \"none\"\n");
  CHECK(read_norm_policy(folder / "p.toml") == "\"bn1\" = \"none\"\n");
}

TEST_CASE("norm policy: the line that places the norms of blocks") {
  const auto placement = [](const std::string& text) { return parse_norm_policy(text, "p.toml").placement; };
  CHECK(!placement("\"bn1\" = \"none\"\n").has_value());
  CHECK(placement("placement = \"inside\"") == NormPlacement::inside);
  CHECK(placement("\"bn1\" = \"none\"\nplacement = \"pre\"\nfreeze = \"stem\"\n") == NormPlacement::pre);
  CHECK(placement("placement = 'post'") == NormPlacement::post);
  CHECK(placement("\"placement\" = \"peri\"") == NormPlacement::peri);
  const NormPolicy policy = parse_norm_policy("# one\nplacement = \"pre\"\n\"bn1\" = \"none\"\n", "p.toml");
  CHECK(policy.placement_line == 2);
  CHECK(policy.rules.size() == 1);
  CHECK(error_of_text("placement = \"sandwich\"\n") ==
        "norm policy: p.toml:1:13: placement: expected inside, pre, post or peri, got 'sandwich'");
  CHECK(error_of_text("\n placement = 3\n") ==
        "norm policy: p.toml:2:14: placement: expected inside, pre, post or peri, got another type");
  CHECK(error_of_text("placement = \"pre\"\nplacement = \"post\"\n") ==
        "norm policy: p.toml:2:13: 'placement': expected each pattern once, got it again");
  for (const NormPlacement each :
       {NormPlacement::inside, NormPlacement::pre, NormPlacement::post, NormPlacement::peri}) {
    CHECK(placement(fmt::format("placement = \"{}\"", to_string(each))) == each);
  }
}

TEST_CASE("norm policy: the last matching line decides, in every network") {
  const NormPolicy policy =
      parse_norm_policy("\"*\" = \"layer2d\"\n\"layer[34].*\" = \"group:8\"\n\"layer4.?.bn2\" = \"none\"\n", "p.toml");
  const auto model = models::create_model("resnet18", {.num_classes = 3, .norm_policy = policy});
  const auto norms = norms_of(*model);
  CHECK(norms.size() == 20);
  CHECK(norms.at("bn1") == "LayerNorm2d(64, eps=1e-06)");
  CHECK(norms.at("layer1.0.bn1") == "LayerNorm2d(64, eps=1e-06)");
  CHECK(norms.at("layer3.1.bn2") == "GroupNorm(8, 256, eps=1e-05)");
  CHECK(norms.at("layer4.0.downsample.1") == "GroupNorm(8, 512, eps=1e-05)");
  CHECK(norms.at("layer4.1.bn2") == "NoNorm");

  // ConvNeXt's own eps, unless the policy says otherwise.
  const auto convnext = models::create_model(
      "convnext_atto", {.num_classes = 3,
                        .norm_policy = parse_norm_policy("\"stages.3.*\" = \"group:8\"\n\"stages.3.blocks.1.norm\" = "
                                                         "\"batch[eps=1e-4]\"\n",
                                                         "p.toml")});
  const auto layers = norms_of(*convnext);
  CHECK(layers.at("stages.2.blocks.0.norm") == "LayerNorm2d(160, eps=1e-06)");
  CHECK(layers.at("stages.3.blocks.0.norm") == "GroupNorm(8, 320, eps=1e-06)");
  CHECK(layers.at("stages.3.blocks.1.norm").starts_with("BatchNorm2d(320, eps=0.0001"));
  CHECK(layers.at("stages.3.downsample.0") == "GroupNorm(8, 160, eps=1e-06)");
  const auto version_2 = models::create_model(
      "convnextv2_atto", {.num_classes = 3, .norm_policy = parse_norm_policy("\"stem.1\" = \"none\"\n", "p.toml")});
  CHECK(norms_of(*version_2).at("stem.1") == "NoNorm");
}

TEST_CASE("norm policy: start values are those of the network without it, a zero stays zero") {
  const NormPolicy policy = parse_norm_policy("\"layer*.bn2\" = \"group:8\"", "p.toml");
  const auto plain = models::create_model("resnet18", {.num_classes = 3, .zero_init_last = true, .seed = 5});
  const auto with =
      models::create_model("resnet18", {.num_classes = 3, .zero_init_last = true, .seed = 5, .norm_policy = policy});
  const NamedTensors a = plain->named_parameters();
  const NamedTensors b = with->named_parameters();
  REQUIRE(a.size() == b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    CHECK(a[i].first == b[i].first);
    CHECK(test::max_difference(a[i].second, b[i].second) == 0);
  }
}

TEST_CASE("norm policy: a pattern that matches no norm is an error, and nothing changes") {
  const auto model = models::create_model("resnet18", {.num_classes = 3});
  const auto before = norms_of(*model);
  const std::string text = error_of([&] {
    apply_norm_policy(*model, parse_norm_policy("\"bn1\" = \"none\"\n\"layer1.0.conv1\" = \"none\"\n", "p.toml"));
  });
  CHECK(text.starts_with(
      "norm policy: p.toml:2: 'layer1.0.conv1': expected the name of a norm layer, got none of bn1, layer1.0.bn1, "));
  CHECK(norms_of(*model) == before);
  CHECK(error_of([&] {
          apply_norm_policy(*model, parse_norm_policy("\"bn1\" = \"none\"\n\"layer1.*.bn1\" = \"group:7\"\n", "p"));
        }) ==
        "norm policy: p:2: 'layer1.*.bn1': layer1.0.bn1: group_norm: num_channels must be divisible by num_groups, got "
        "num_channels 64, num_groups 7");
  CHECK(norms_of(*model) == before);
}

TEST_CASE("norm policy: a rule that decides no layer is an error, and nothing changes") {
  const auto model = models::create_model("resnet18", {.num_classes = 3});
  const auto before = norms_of(*model);
  CHECK(error_of([&] {
          apply_norm_policy(*model,
                            parse_norm_policy("\"layer1.0.bn?\" = \"none\"\n\"layer1.*\" = \"layer2d\"\n", "p.toml"));
        }) ==
        "norm policy: p.toml:1: 'layer1.0.bn?': expected a norm layer that no later line decides, got layer1.0.bn1, "
        "layer1.0.bn2");
  CHECK(norms_of(*model) == before);
}

TEST_CASE("norm policy: convnext's head has one pixel, which some norms cannot take") {
  const auto with = [](const std::string& text) {
    return models::create_model("convnext_atto", {.num_classes = 3, .norm_policy = parse_norm_policy(text, "p.toml")});
  };
  for (const char* norm : {"instance", "frn"}) {
    CHECK(error_of([&] { with(fmt::format("\"*\" = \"{}\"\n", norm)); }) ==
          fmt::format("norm policy: p.toml:1: '*': head.norm: expected a norm for a single pixel, got {}; a later line "
                      "\"head.norm\" = \"layer2d\" is what --norm {} does",
                      norm, norm));
  }
  const auto model = with("\"*\" = \"instance\"\n\"head.norm\" = \"layer2d\"\n");
  const auto plain = models::create_model("convnext_atto", {.num_classes = 3, .norm = "instance"});
  CHECK(norms_of(*model) == norms_of(*plain));
}

TEST_CASE("norm policy: tables in tables without end are refused before anything walks them") {
  const auto error = [](const std::string& text) { return error_of([&] { parse_norm_policy(text, "p"); }); };
  std::string dots;
  for (int i = 0; i < 400'000; ++i) {
    dots += "a.";
  }
  CHECK(error("\n" + dots + "a = \"batch\"") == "norm policy: p:2: expected a line of at most 1000 bytes, got 800011");
  CHECK(error("[" + dots + "a]") == "norm policy: p:1: expected a line of at most 1000 bytes, got 800003");
  CHECK(error("\"a\" = \"" + dots + "\"").size() < 100);
  std::string lists;
  for (int i = 0; i < 400'000; ++i) {
    lists += "[\n";
  }
  CHECK(error("a = " + lists).size() < 500);
  CHECK(error(std::string((size_t{1} << 20) + 2048, '\n')) == "norm policy: p: expected at most 1 MiB, got 1 MiB");
  CHECK(error("\"bn1\" = \"batch\"\n [[[a") == "norm policy: p:2: expected a line \"pattern\" = \"text\", got '[[[a'");
  CHECK(error("[{}]\n") == "norm policy: p:1: expected a line \"pattern\" = \"text\", got '[{}]'");
  // As deep as a file of lines can be.
  std::string nested = "a = ";
  for (int i = 0; i < 4; ++i) {
    nested += "[{" + dots.substr(0, 900) + "a = [\n";
  }
  CHECK(error(nested).starts_with("norm policy: p:"));
  CHECK(error("\"a\" = \"\"\"\n" + std::string(500, 'x') + "\n" + std::string(500, 'x') + "\"\"\"").size() < 500);
}

TEST_CASE("norm policy: long patterns and lists are cut in errors") {
  auto network = models::create_model("resnet50", {.num_classes = 3, .initialize = false});
  const std::string long_name(900, 'a');
  const std::string text =
      error_of([&] { apply_norm_policy(*network, parse_norm_policy("\"" + long_name + "\" = \"group\"", "p"), {}); });
  CHECK_MESSAGE(text.size() < 400, text);
  CHECK_MESSAGE(text.ends_with(" more"), text);
}
