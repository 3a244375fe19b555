#include "base/lists.h"
#include "base/nearest_name.h"
#include "data/augment/mix.h"
#include "data/augment/rectangles.h"
#include "data/dataset.h"
#include "data/transform.h"
#include "nn/cast_policy.h"
#include "nn/conv.h"
#include "nn/freeze.h"
#include "nn/norm/batch_norm.h"
#include "nn/norm/factory.h"
#include "nn/norm/options.h"
#include "nn/norm/policy.h"
#include "train/recipe.h"
#include "train/recipe_option.h"
#include "train/weights.h"

#include <algorithm>
#include <string>
#include <vector>

// The descriptions of all options of a recipe. CONTRIBUTING.md says how to add one.

namespace norma::train {

namespace {

using Option = RecipeOption;
using Part = RecipePart;

constexpr const char* kNetwork = "Network";
constexpr const char* kImages = "Images";
constexpr const char* kOptimization = "Optimization";

constexpr OnResume kFixed = OnResume::another_run;
constexpr OnResume kAlways = OnResume::always;

// Upper ends are far beyond what makes sense, but so low that no product of a few of them overflows.
constexpr Range<double> kProbability{0, 1};
constexpr Range<double> kBelowOne{.low = 0, .high = 1, .with_high = false};
constexpr Range<double> kAboveZero{.low = 0, .high = 1, .with_low = false};
constexpr Range<double> kUpTo1000{0, 1000};
constexpr Range<double> kEpochsOrNone{0, 1'000'000};
constexpr Range<int64_t> kImageCount{0, 1'000'000'000'000};

/// False iff --sync-bn is given to a network without batch norm.
bool shares_batch_norm(const Recipe& recipe) {
  if (!recipe.sync_bn) {
    return true;
  }
  std::vector<std::string> specs{norm_of(recipe)};
  for (const nn::NormRule& rule : norm_policy_of(recipe).rules) {
    specs.push_back(rule.norm);
  }
  return std::ranges::any_of(specs, [](const std::string& spec) {
    const nn::NormChoice choice = nn::parse_norm(spec);
    const auto norm = nn::make_norm(choice, nn::least_channels(choice));
    return dynamic_cast<const nn::BatchNorm*>(norm.get()) != nullptr;
  });
}

constexpr Needed kBatchNorm{"batch norm", shares_batch_norm};
constexpr Needed kScale{"scale", [](const Recipe& r) { return !r.scale.empty(); }};
constexpr Needed kReprob{"reprob", [](const Recipe& r) { return r.reprob > 0; }};
constexpr Needed kLrBase{"lr-base", [](const Recipe& r) { return r.lr_base > 0; }};
constexpr Needed kInitial{"initial-checkpoint", [](const Recipe& r) { return !r.initial_checkpoint.empty(); }};
constexpr Needed kConverting{"convert-norm", [](const Recipe& r) { return r.convert_norm != "keep"; }};
constexpr Needed kModelEma{"model-ema", [](const Recipe& r) { return r.model_ema; }};
constexpr Needed kSkipping{"skip-nonfinite", [](const Recipe& r) { return r.skip_nonfinite; }};
constexpr Needed kFolder{"dataset imagefolder", [](const Recipe& r) { return r.dataset == "imagefolder"; }};
constexpr Needed kMixing{"mixup or cutmix", [](const Recipe& r) { return r.mixup > 0 || r.cutmix > 0; }};
constexpr Needed kBothMixing{"both mixup and cutmix", [](const Recipe& r) { return r.mixup > 0 && r.cutmix > 0; }};
constexpr Needed kStep{"sched step", [](const Recipe& r) { return r.sched == "step"; }};
constexpr Needed kMultistep{"sched multistep", [](const Recipe& r) { return r.sched == "multistep"; }};
constexpr Needed kDecaying{"sched step, multistep or poly", [](const Recipe& r) {
                             return r.sched == "step" || r.sched == "multistep" || r.sched == "poly";
                           }};

std::string read_norms(const std::string& file) {
  std::string text = nn::read_norm_policy(file);
  nn::parse_norm_policy(text, file);
  return text;
}

std::string read_casts(const std::string& file) {
  std::string text = nn::read_cast_policy(file);
  nn::parse_cast_policy(text, file);
  return text;
}

void check_cast(const std::string& text) {
  CastPolicy policy;
  nn::set_cast(policy, text);
}

void check_freeze(const std::string& text) {
  nn::freeze_patterns(text);
}

std::vector<std::string> pool_names() {
  return {"token", "avg"};
}

void check_pool(const std::string& text) {
  check(text == "token" || text == "avg", "train", "global-pool: expected token or avg, got '{}'", text);
}

std::vector<std::string> placement_names() {
  return mapped(nn::kNormPlacements, [](nn::NormPlacement one) { return std::string(nn::to_string(one)); });
}

void check_placement(const std::string& text) {
  const std::vector<std::string> names = placement_names();
  check(is_in(names, text), "train", "norm-placement: {}", unknown_name("placement", text, names));
}

void check_qk_norm(const std::string& text) {
  try {
    nn::parse_norm(text);
  } catch (const Error& error) {  // which names no option
    fail("train", "qk-norm: {}", error.what());
  }
}

std::vector<std::string> lr_base_scale_names() {
  return {"linear", "sqrt"};
}

std::vector<std::string> aa_examples() {
  return {"ta_wide", "rand-m9-mstd0.5-inc1"};
}

/// `usual`: of the options that say nothing else.
std::vector<Option> about(Part part, const char* heading, OnResume usual, std::vector<Option> options) {
  for (Option& option : options) {
    option.part = part;
    option.heading = heading;
    option.on_resume = option.on_resume.value_or(usual);
  }
  return options;
}

std::vector<Option> about(Part part, const char* heading, std::vector<Option> options) {
  return about(part, heading, OnResume::change, std::move(options));
}

std::vector<std::vector<Option>> table() {
  return {
      about(
          Part::model, kNetwork, kFixed,
          {Option("model", &Recipe::model,
                  "resnet18 … resnet152, convnext_atto … convnext_xlarge, convnextv2_atto … convnextv2_huge, "
                  "vit_tiny … vit_base, vit_base_clip",
                  {.names = models::model_names, .kind = "model"}),
           Option("norm", &Recipe::norm,
                  "{names}; group:8 is 8 groups, group/8 is 8 channels per group; options in brackets: "
                  "batch[momentum=0.01,eps=1e-3]",
                  {.absent = "the model's own", .value_name = "SPEC", .expected = "a norm", .names = nn::norm_names})}),
      about(
          Part::network, kNetwork, kFixed,
          {Option("norm-policy", FileField{&Recipe::norm_policy, &Recipe::norm_policy_file, read_norms},
                  "other norms for some layers: a file of lines \"layer4.*\" = \"group:32\""),
           Option("norm-placement", TextField{&Recipe::norm_placement, check_placement},
                  "ConvNeXt, ViT: where the norms of a block stand: {names}",
                  {.absent = "the network's own: inside; ViT: pre", .value_name = "NAME", .names = placement_names}),
           Option("conv-layer", &Recipe::conv_layer, "the convolutions: {names}", {.names = nn::conv_layer_names}),
           Option("small-stem", &Recipe::small_stem,
                  "ResNet: begin with a 3x3 convolution without stride and pooling, for small images"),
           Option("patch-size", &Recipe::patch_size, {1, 1024},
                  "ConvNeXt, ViT: size and stride of the first convolution",
                  {.absent = "2 for images below 64 pixels, else 4; ViT: 4, else 16", .value_name = "P"}),
           Option("layer-scale", &Recipe::layer_scale, kUpTo1000,
                  "ConvNeXt, ViT: start value of each block's scale; 0 leaves it out", {.absent = "1e-6; V2, ViT: 0"}),
           Option("global-pool", TextField{&Recipe::global_pool, check_pool},
                  "ViT: what the classifier gets: token (the class token) or avg (the mean of the others)",
                  {.absent = "token", .value_name = "NAME", .names = pool_names}),
           Option("qk-norm", TextField{&Recipe::qk_norm, check_qk_norm},
                  "ViT: the norm of queries and keys, over the channels of a head",
                  {.absent = "none",
                   .value_name = "SPEC",
                   .expected = "a norm",
                   .or_none = true,
                   .names = nn::norm_names}),
           Option("qkv-bias", &Recipe::qkv_bias, "ViT: give the products of queries, keys and values a bias"),
           Option("pos-drop", &Recipe::pos_drop, kBelowOne,
                  "ViT: rate of the dropout after the positions, timm's pos_drop_rate"),
           Option("zero-init-last", &Recipe::zero_init_last, "ResNet: start the last norm of each block at 0"),
           Option("drop-path", &Recipe::drop_path, kBelowOne, "chance of leaving out the last block (stochastic depth)",
                  {.on_resume = OnResume::change, .value_name = "RATE"}),
           Option("grad-checkpointing", &Recipe::grad_checkpointing,
                  "keep only the inputs of blocks and compute the rest again in backward: the same numbers in less "
                  "memory and more time",
                  {.on_resume = OnResume::change}),
           Option("recompute-norms", &Recipe::recompute_norms,
                  "keep no outputs of norms and activations, and compute them again in backward: the same numbers in "
                  "less memory and little more time",
                  {.on_resume = OnResume::change}),
           Option("sync-bn", &Recipe::sync_bn,
                  "batch norm over the images of all processes (--procs), as in one process", {.needs = kBatchNorm})}),
      about(Part::data, kImages,
            {Option("dataset", &Recipe::dataset,
                    "fashion_mnist; shapes (generated, needs no files); with --data-dir: imagefolder (JPEG, PNG, … in "
                    "train/CLASS and val/CLASS), cifar10, cifar100, emnist_letters, idx (any folder with IDX files)",
                    {.on_resume = kFixed, .names = data::dataset_names, .kind = "dataset"}),
             Option("data-dir", &Recipe::data_dir, "where the dataset's files are",
                    {.on_resume = kAlways,
                     .absent = "where its package puts them",
                     .value_name = "FOLDER",
                     .expected = "a path"}),
             Option("skip-bad-images", &Recipe::skip_bad_images,
                    "imagefolder: where an image cannot be decoded, take the next one",
                    {.on_resume = kAlways, .needs = kFolder}),
             Option("exif-orientation", &Recipe::exif_orientation,
                    "imagefolder: turn photographs upright as their EXIF data ask, which torchvision does not",
                    {.on_resume = kFixed, .needs = kFolder}),
             Option("decode", &Recipe::decode,
                    "{names}: imagefolder: scaled decodes a JPEG at 1/2, 1/4 or 1/8 of its size where no more is shown",
                    {.on_resume = kFixed, .names = decode_names, .kind = "name", .needs = kFolder}),
             Option("classes", &Recipe::classes, {0, 1'000'000},
                    "train and test on the images of these classes alone, numbered anew in this order: 0,2,4",
                    {.on_resume = kFixed, .absent = "all of them"})}),
      about(Part::shape, kImages,
            {Option("img-size", &Recipe::image_size, ranges::kImageSize,
                    "height and width; smaller images are padded, larger ones resized", {.key = "image_size"}),
             Option("batch-size", &Recipe::batch_size, ranges::kBatchSize, "images per step",
                    {.on_resume = kFixed, .letter = 'b'}),
             Option("channels-last", &Recipe::channels_last, "keep activations in the order N, H, W, C")}),
      about(Part::data, kImages,
            {Option("test-images", &Recipe::test_images, kImageCount,
                    "evaluate on the first N test images (imagefolder: on N of them)",
                    {.on_resume = kAlways, .absent = "0: all of them"}),
             Option("interpolation", &Recipe::interpolation, "{names}: of test images that are resized",
                    {.on_resume = kAlways, .names = interpolation_names, .kind = "name"}),
             Option("crop-pct", &Recipe::crop_pct, data::kCropPct,
                    "images that are resized keep this part of their side, in the middle", {.on_resume = kAlways})}),
      about(Part::length, kImages,
            {Option("train-images", &Recipe::train_images, kImageCount,
                    "train on N of the training images, the same ones at every seed",
                    {.on_resume = kFixed, .absent = "0: all of them"}),
             Option("epochs", &Recipe::epochs, ranges::kEpochs, "length of the training in passes over the images",
                    {.on_resume = kAlways, .replaced_by = "images"}),
             Option("images", &Recipe::images, kImageCount, "length of the training in images, instead of --epochs",
                    {.on_resume = kAlways, .replaces = "epochs"})}),
      about(Part::augmentation, "Augmentation of training images",
            {Option("flip", &Recipe::flip, "mirror each image with probability 1/2"),
             Option("random-crop", &Recipe::crop_padding, {0, 8192}, "shift images by up to N pixels, by chance",
                    {.key = "crop_padding"}),
             Option("scale", &Recipe::scale, kAnyNumber,
                    "cut out a window of this part of the area, by chance, and resize it: 0.08,1",
                    {.absent = "no window"}),
             Option("ratio", &Recipe::ratio, kAnyNumber, "width to height of these windows",
                    {.absent = "0.75,1.3333", .needs = kScale}),
             Option("hflip", &Recipe::hflip, kProbability, "mirror with this probability"),
             Option("vflip", &Recipe::vflip, kProbability, "turn upside down with this probability"),
             Option("color-jitter", &Recipe::color_jitter,
                    "change brightness, contrast and saturation by up to X (0.4), or each by its own and the hue "
                    "(0.4,0.4,0.4,0.1)",
                    {.value_name = "LIST", .expected = "a number", .or_none = true}),
             Option("aa", &Recipe::aa, "automatic augmentation: ta_wide, or RandAugment as in rand-m9-mstd0.5-inc1",
                    {.or_none = true, .names = aa_examples}),
             Option("reprob", &Recipe::reprob, kProbability, "erase a rectangle with this probability"),
             Option("remode", &Recipe::remode, "{names}: what comes in its place",
                    {.names = data::erasing_mode_names, .needs = kReprob}),
             Option("recount", &Recipe::recount, data::kErasingCount, "erase up to N rectangles", {.needs = kReprob}),
             Option("train-interpolation", &Recipe::train_interpolation,
                    "{names}: of training images that are resized or moved",
                    {.names = train_interpolation_names, .kind = "name"}),
             Option("mixup", &Recipe::mixup, data::kMixAlpha,
                    "mix the images of a batch in pairs, by shares from Beta(X, X)", {.absent = "0: no mixing"}),
             Option("cutmix", &Recipe::cutmix, data::kMixAlpha, "put a rectangle of the other image in, likewise",
                    {.absent = "0: no mixing"}),
             Option("mixup-prob", &Recipe::mixup_prob, kProbability, "of a batch to be mixed", {.needs = kMixing}),
             Option("mixup-switch-prob", &Recipe::mixup_switch_prob, kProbability,
                    "of --cutmix, where --mixup is given too", {.needs = kBothMixing}),
             Option("aug-repeats", &Recipe::aug_repeats, {0, data::kMaxRepeats},
                    "take each image N times in a row, augmented anew; an epoch is no longer and has fewer images",
                    {.absent = "0: once"})}),
      about(
          Part::update, kOptimization,
          {Option("opt", &Recipe::opt, "{names}", {.on_resume = kFixed, .names = optimizer_names, .kind = "optimizer"}),
           Option("weight-decay", &Recipe::weight_decay, kUpTo1000, "of the weights of convolutions and linear layers"),
           Option("norm-weight-decay", &Recipe::norm_weight_decay, kUpTo1000,
                  "of the weights and biases of norm layers"),
           Option("bias-weight-decay", &Recipe::bias_weight_decay, kUpTo1000, "of the biases of all other layers"),
           Option("head-lr", &Recipe::head_lr, kUpTo1000, "learning rate of the classifier, scheduled as --lr is",
                  {.absent = "--lr"}),
           Option("layer-decay", &Recipe::layer_decay, kAboveZero,
                  "learning rate of each block, as a share of the next one's", {.absent = "1: all the same"}),
           Option(
               "momentum", &Recipe::momentum, kBelowOne,
               "of sgd, rmsproptf and muon; beta1 of adamw and lamb; --sched onecycle moves it between 0.85 and 0.95"),
           Option("opt-betas", &Recipe::opt_betas, kBelowOne, "beta1 and beta2 of adamw, lamb and muon: 0.9,0.999",
                  {.absent = "--momentum,0.999; muon: 0.9,0.95"}),
           Option("opt-eps", &Recipe::opt_eps, {.low = 0, .high = 1, .with_low = false},
                  "eps of adamw, lamb, rmsproptf and muon", {.absent = "1e-8, 1e-6, 1e-10, 1e-7"}),
           Option("smoothing", &Recipe::smoothing, kBelowOne, "label smoothing"),
           Option("clip-grad", &Recipe::clip_grad, {0, 1'000'000'000},
                  "largest norm of all gradients together, or what --clip-mode says", {.absent = "0: not clipped"}),
           Option("clip-mode", &Recipe::clip_mode,
                  "{names}: --clip-grad is the norm, the largest element, or the largest share of each unit's weights",
                  {.names = clip_mode_names, .kind = "clip mode"})}),
      about(
          Part::steps, kOptimization,
          {Option("grad-accum-steps", &Recipe::grad_accum_steps, {1, 65'536}, "batches whose gradients make one update",
                  {.on_resume = kFixed}),
           Option("bce-loss", &Recipe::bce_loss, "binary cross entropy over the classes in the place of cross entropy"),
           Option("bce-target-thresh", &Recipe::bce_target_thresh, kBelowOne,
                  "with --bce-loss: targets above X become 1, others 0", {.absent = "targets as they are"}),
           Option("lr", &Recipe::lr, ranges::kLr, "learning rate at its highest", {.replaced_by = "lr-base"})}),
      about(
          Part::run, kOptimization,
          {Option("lr-base", &Recipe::lr_base, kUpTo1000,
                  "learning rate for --lr-base-size images per update, instead of --lr", {.replaces = "lr"}),
           Option("lr-base-size", &Recipe::lr_base_size, ranges::kBatchSize, "images per update that --lr-base is for",
                  {.needs = kLrBase}),
           Option("lr-base-scale", &Recipe::lr_base_scale, "{names}: how --lr-base follows the images per update",
                  {.absent = "sqrt for adamw and lamb, else linear", .names = lr_base_scale_names, .needs = kLrBase})}),
      about(Part::steps, kOptimization,
            {Option("sched", &Recipe::sched, "{names}: how the learning rate moves",
                    {.names = schedule_names, .kind = "schedule"}),
             Option("sched-on-updates", &Recipe::sched_on_updates, "move it with every step, not once an epoch"),
             Option("warmup-epochs", &Recipe::warmup_epochs, kEpochsOrNone, "the learning rate rises for so long",
                    {.absent = "0; onecycle: 30 % of the run"}),
             Option("warmup-lr", &Recipe::warmup_lr, kUpTo1000, "where it begins to rise; the warm-up is timm's then",
                    {.absent = "poly, multistep: 1e-5; others: docs/training.md"}),
             Option("warmup-prefix", &Recipe::warmup_prefix,
                    "with --warmup-lr: the schedule begins after the warm-up, not with it"),
             Option("min-lr", &Recipe::min_lr, kUpTo1000, "sched cosine, poly: learning rate at the end"),
             Option("cooldown-epochs", &Recipe::cooldown_epochs, kEpochsOrNone,
                    "sched cosine, poly: stay at --min-lr for so long at the end"),
             Option("decay-epochs", &Recipe::decay_epochs, {.low = 0, .high = 1'000'000, .with_low = false},
                    "sched step: epochs between two decays", {.needs = kStep}),
             Option("decay-milestones", &Recipe::decay_milestones, {1, 1'000'000},
                    "sched multistep: epochs, counted from 1, that have a decay, as in timm", {.needs = kMultistep}),
             Option("decay-rate", &Recipe::decay_rate, {.low = 0, .high = 1000, .with_low = false},
                    "sched step, multistep: factor of each decay; poly: its power", {.needs = kDecaying})}),
      about(Part::start, "Weights at the start", kFixed,
            {Option("initial-checkpoint", &Recipe::initial_checkpoint,
                    "begin with the weights of a file: of Norma, timm, torchvision, Hugging Face or Facebook, as "
                    "safetensors or .pth; a classifier of other classes is made anew",
                    {.absent = "random weights", .value_name = "FILE", .expected = "a file"}),
             Option("reset-head", &Recipe::reset_head, "make the classifier anew in any case", {.needs = kInitial}),
             Option("use-ema", &Recipe::use_ema, "take the file's averaged weights", {.needs = kInitial}),
             Option("weights-prefix", &Recipe::weights_prefix,
                    "a part of what stands before the weights' names in a file of several networks: encoder_q",
                    {.absent = "any", .value_name = "TEXT", .expected = "a text", .needs = kInitial}),
             Option("strict", &Recipe::strict,
                    "refuse a file that lacks tensors of norms or of the classifier, or has others",
                    {.needs = kInitial})}),
      about(Part::steps, "Weights at the start",
            {Option("freeze", TextsField{&Recipe::freeze, check_freeze},
                    "keep the parameters of these names, and the statistics of their norms, as they are: "
                    "'layer1.*,*.bn1'",
                    {.on_resume = kFixed, .expected = "patterns of names"})}),
      about(Part::conversion, "Weights at the start", kFixed,
            {Option("convert-norm", &Recipe::convert_norm,
                    "{names}: how weights of another norm become those of --norm: weight and bias as they are, or "
                    "fitted to the running statistics of batch norm, or to training images",
                    {.names = convert_norm_names, .kind = "way to change norms", .needs = kInitial}),
             Option("convert-batches", &Recipe::convert_batches, ranges::kSteps, "training batches that it looks at",
                    {.needs = kConverting}),
             Option("from-norm", &Recipe::from_norm, "the norm of the weights in the file",
                    {.absent = "as the file says",
                     .value_name = "SPEC",
                     .expected = "a norm",
                     .names = nn::norm_names,
                     .needs = kConverting})}),
      about(
          Part::run, kOptimization,
          {Option("skip-nonfinite", &Recipe::skip_nonfinite,
                  "leave out a step whose loss or gradients become NaN or infinite, in place of stopping"),
           Option("max-nonfinite", &Recipe::max_nonfinite, ranges::kSteps,
                  "with --skip-nonfinite: stop after N such steps in a row", {.needs = kSkipping}),
           Option("model-ema", &Recipe::model_ema, "keep a moving average of the weights, and evaluate it, too",
                  {.on_resume = kFixed}),
           Option("model-ema-decay", &Recipe::model_ema_decay, kBelowOne, "share of the average that an update keeps",
                  {.needs = kModelEma}),
           Option("model-ema-warmup", &Recipe::model_ema_warmup, "let that share rise from 0", {.needs = kModelEma})}),
      about(Part::seed, kOptimization,
            {Option("seed", &Recipe::seed, ranges::kSeed,
                    "of start values, image order and dropping; same seed, same bits", {.on_resume = kFixed})}),
      about(Part::precision, "Running", kFixed,
            {Option("precision", &Recipe::precision,
                    "{names}; tf32: float32 products with fewer digits, on CUDA; amp: float32 parameters, autocast ops",
                    {.names = precision_names}),
             Option(
                 "cast-policy", FileField{&Recipe::cast_policy, &Recipe::cast_policy_file, read_casts},
                 "amp: what ops compute in, a file of lines \"batch_norm\" = \"float32\"; rules: lower, float32, keep"),
             Option("cast", TextsField{&Recipe::cast, check_cast},
                    "changes of that policy: layer_norm_2d=float32,linear=keep", {.expected = "OP=RULE"})})};
}

}  // namespace

const std::vector<RecipeOption>& recipe_options() {
  static const std::vector<RecipeOption> all = [] {
    std::vector<RecipeOption> result;
    for (const std::vector<RecipeOption>& options : table()) {
      result.insert(result.end(), options.begin(), options.end());
    }
    return result;
  }();
  return all;
}

}  // namespace norma::train
