#pragma once

#include "data/augment/mix.h"
#include "data/loader.h"
#include "data/transform.h"
#include "models/registry.h"
#include "nn/optim/optimizer.h"
#include "nn/optim/schedule.h"
#include "train/precision.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace norma::train {

/// All settings that decide the result of a training run: with the number of threads they give its bits.
struct Recipe {
  // The network.
  std::string model = "resnet18";
  std::string norm;                 ///< "": the family's own
  std::string norm_policy;          ///< text of nn/norm/policy.h: other norms for some layers; "": none
  std::string norm_policy_file;     ///< where it came from, for messages
  std::string norm_placement;       ///< of nn::to_string(NormPlacement), before the policy's; "": the policy's
  std::string conv_layer = "conv";  ///< a name of nn/conv.h
  bool small_stem = false;
  std::optional<int64_t> patch_size;  ///< none: models::default_patch_size()
  std::optional<double> layer_scale;
  std::string global_pool;  ///< of a ViT; "": token
  std::string qk_norm;      ///< of a ViT; "": none
  bool qkv_bias = true;     ///< of a ViT
  double pos_drop = 0;      ///< of a ViT
  bool zero_init_last = false;
  double drop_path = 0;
  bool grad_checkpointing = false;
  bool recompute_norms = false;
  bool sync_bn = false;  ///< all batch norms are `sync_batch`: their statistics are those of all processes

  // The images.
  std::string dataset = "fashion_mnist";
  std::string data_dir;           ///< "": where the dataset's package puts its files
  bool skip_bad_images = false;   ///< as data::DatasetOptions has it
  bool exif_orientation = false;  ///< likewise
  std::string decode = "exact";   ///< exact, or scaled: data::DatasetOptions::enough is as many pixels as are shown
  std::vector<int64_t> classes;   ///< those that count, numbered anew in this order (data::class_subset()); empty: all
  int64_t image_size = 32;
  int64_t crop_padding = 0;  ///< random crops move by up to this many pixels; 0: no cropping
  bool flip = false;         ///< mirror each image with probability 1/2
  // Random changes to training images, by timm's names (docs/augmentation.md); train_transform() converts them for
  // data/.
  std::vector<double> scale;                       ///< range of a resized crop's share of the area; empty: none
  std::vector<double> ratio = {3.0 / 4, 4.0 / 3};  ///< width to height of resized crops
  double hflip = 0;  ///< probability of mirroring; `flip` does it with 0.5 by other random numbers
  double vflip = 0;
  std::string color_jitter;  ///< "0.4", "0.4,0.4,0.4,0.1"; "": none
  std::string aa;            ///< automatic augmentation: "rand-…", "ta_wide"; "": none
  double reprob = 0;         ///< probability of random erasing
  std::string remode = "const";
  int64_t recount = 1;
  std::string train_interpolation = "bilinear";  ///< bilinear, bicubic or random: for resized or moved images
  std::string interpolation = "bilinear";        ///< bilinear or bicubic: for resized test images
  double crop_pct = 0.875;                       ///< TransformOptions::crop_pct, for evaluation too
  double mixup = 0;                              ///< alpha of mixup; 0: none
  double cutmix = 0;
  double mixup_prob = 1;           ///< that a batch is mixed
  double mixup_switch_prob = 0.5;  ///< that cutmix is taken, if both are on
  int64_t aug_repeats = 0;         ///< LoaderOptions::repeats; 0 is 1
  int64_t batch_size = 128;
  int64_t epochs = 3;
  int64_t images = 0;       ///< length of the run in training images instead of epochs
  int64_t test_images = 0;  ///< evaluate on this many test images; 0: on all
  /// Train on this many of the training images, the same ones at every seed (data::random_subset()); 0: on all.
  int64_t train_images = 0;
  bool channels_last = true;

  // The optimization.
  std::string opt = "adamw";  ///< one of optimizer_names()
  double lr = 2e-3;
  double weight_decay = 0.05;
  double norm_weight_decay = 0;    ///< of norm layers' parameters
  double bias_weight_decay = 0;    ///< of the biases of all other layers
  double layer_decay = 1;          ///< each block's rate is the next one's times this; 1: the same for all
  int64_t grad_accum_steps = 1;    ///< batches whose gradients make one update
  double momentum = 0.9;           ///< of SGD, RMSprop and Muon; beta1 of AdamW and LAMB; one-cycle moves it
  std::vector<double> opt_betas;   ///< beta1 (instead of `momentum`) and beta2 of AdamW and LAMB, and of Muon's AdamW
  std::optional<double> opt_eps;   ///< of AdamW, LAMB, RMSprop and Muon; none: 1e-8, 1e-6, 1e-10, 1e-7
  std::string sched = "onecycle";  ///< one of schedule_names()
  double lr_base = 0;              ///< above 0: the learning rate for lr_base_size images, instead of `lr`
  int64_t lr_base_size = 256;
  std::string lr_base_scale;        ///< linear or sqrt; "": sqrt for adamw and lamb, else linear, as in timm
  double warmup_epochs = 0;         ///< the rate rises for this long; one-cycle: 0 means 30 % of the run
  std::optional<double> warmup_lr;  ///< the rate at the start of the warm-up; none: see make_schedules()
  bool warmup_prefix = false;       ///< with warmup_lr: the schedule begins after the warm-up
  double min_lr = 0;                ///< cosine, poly: the rate at the end
  double cooldown_epochs = 0;       ///< cosine, poly: for this long at the end the rate is min_lr
  double decay_epochs = 1;          ///< step: epochs between two decays
  std::vector<int64_t> decay_milestones{90, 180, 270};  ///< multistep: epochs, from 1, with a decay: make_schedules()
  double decay_rate = 0.1;                              ///< step, multistep: the factor of each decay; poly: the power
  bool sched_on_updates = true;                         ///< the rate moves with every step; false: once an epoch
  double smoothing = 0;                                 ///< of the labels
  bool bce_loss = false;                    ///< binary cross entropy over the classes instead of cross entropy
  std::optional<double> bce_target_thresh;  ///< with bce_loss: targets above this become 1, others 0
  double clip_grad = 0;                     ///< the limit that clip_mode describes; 0: not clipped
  std::string clip_mode = "norm";           ///< one of clip_mode_names()
  bool skip_nonfinite = false;              ///< leave out steps whose loss or gradients are not finite
  int64_t max_nonfinite = 10;               ///< with skip_nonfinite: stop after this many such steps in a row
  // The weights to begin with. Without initial_checkpoint the seven members after it have no effect.
  std::string initial_checkpoint;     ///< the file with them (weights.h)         ; "": none
  bool reset_head = false;            ///< the classifier keeps its start values
  bool use_ema = false;               ///< take the averaged weights of the file
  std::string weights_prefix;         ///< as WeightsOptions::prefix
  bool strict = false;                ///< an Error for tensors of norms and the classifier that one side lacks
  std::string convert_norm = "keep";  ///< how new norms are fitted (weights.h)
  int64_t convert_batches = 10;       ///< training batches for convert_norm
  std::string from_norm;              ///< the norm of the network in the file; "": as the file says
  std::optional<double> head_lr;      ///< learning rate of the classifier; none: lr
  std::vector<std::string> freeze;    ///< patterns of parameters that stay as they are (freeze.h)
  bool model_ema = false;             ///< keep a moving average of the weights (ema.h), and evaluate it, too
  double model_ema_decay = 0.9998;
  bool model_ema_warmup = false;  ///< the average begins with a small decay
  uint64_t seed = 0;              ///< of the start values, the order of images, dropout and drop path

  // The precision.
  std::string precision = "float32";  ///< one of precision_names()
  std::string cast_policy;            ///< text of nn/cast_policy.h; "": the default
  std::string cast_policy_file;       ///< where it came from, for messages
  std::vector<std::string> cast;      ///< changes of the cast policy: "layer_norm_2d=lower" (nn::set_cast())
};

std::vector<std::string> optimizer_names();
std::vector<std::string> schedule_names();
/// norm: clips all gradients together; value: each element; agc: nn::adaptive_clip_grad().
std::vector<std::string> clip_mode_names();

/// Throws Error "train: name: expected …, got …" for the first invalid value. Reads no file. `with_weights`: where it
/// leaves_patches_open(), load_network() checks the size of images.
void check_recipe(const Recipe& recipe, bool with_weights = false);
/// True iff a file of weights says the size of a ViT's patches: the recipe leaves it open.
bool leaves_patches_open(const Recipe& recipe);
/// Checks the optimizer, its schedule and the loss together, not each value alone.
void check_optimization(const Recipe& recipe);

/// Throws Error for options that check_recipe() accepts but a training run would ignore or change: a clip_mode without
/// clip_grad, warmup_lr without warmup_epochs, min_lr above base_lr(), a cool-down that leaves no step between it and
/// the warm-up. Recipes of finished runs need not pass.
void check_training(const Recipe& recipe);

/// A line for each option without effect because its counterpart is off, if it differs from its default or is one of
/// `given`: "model-ema-decay has no effect without model-ema".
std::vector<std::string> without_effect(const Recipe& recipe, const std::vector<std::string>& given = {});

/// The text of the recipe's policy for norms, read, with the chosen placement; without rules if it has none.
nn::NormPolicy norm_policy_of(const Recipe& recipe);

/// Throws Error for a norm policy that does not fit the recipe's model, whatever its norm. Builds the network, without
/// start values.
void check_norm_policy(const Recipe& recipe);

/// The model for people: "resnet50", or with unusual convolutions "resnet50 (std_conv)".
std::string model_label(const std::string& model, const Recipe& recipe);

/// The norm for people: "batch", or with a norm policy "batch + p.toml", the policy's file.
std::string norm_label(const std::string& norm, const Recipe& recipe);

/// As JSON text, and back. Reading throws Error that begins with `where` for a text that is no recipe and a field of
/// another type (3.7 is no whole number); absent fields keep their defaults.
std::string to_json(const Recipe& recipe);
Recipe recipe_from_json(const std::string& text, const std::string& where = "recipe");

/// A line for each option that differs, "lr 0.002 → 0.01" or "patch-size none → 2".
std::vector<std::string> differences(const Recipe& before, const Recipe& after);

// --- what a recipe asks for ------------------------------------------------------------------------------------

std::shared_ptr<const data::Dataset> make_dataset(const Recipe& recipe, data::Split split);
/// The channels of the images that networks see, grey ones included.
inline constexpr int64_t kImageChannels = 3;

/// Batches that a run's loaders have ready or in the making: two for each worker, and a few at least.
inline int64_t prefetched_batches(int workers) {
  return std::max<int64_t>(4, 2 * int64_t{workers});
}

/// Shuffled and augmented batches of a training run, from batch `first_step` on. `device` is where they go: for another
/// one than the host the images are bytes (LoaderOptions::bytes), unless random erasing, or mixing with `part`, forbids
/// it.
data::Loader make_train_loader(const Recipe& recipe, std::shared_ptr<const data::Dataset> dataset, int workers,
                               int64_t first_step = 0, Device device = kCpu, const data::LoaderPart& part = {});
/// The norm of a recipe's network: the network's own one if the recipe names none.
std::string norm_of(const Recipe& recipe);
/// The number of test images that a run evaluates on.
int64_t test_images_of(const Recipe& recipe, const data::Dataset& dataset);
/// The test images in order, without augmentation. If a dataset is sorted by label, a part of it is drawn at random,
/// the same for every run. `device` as above.
data::Loader make_test_loader(const Recipe& recipe, std::shared_ptr<const data::Dataset> dataset, int workers,
                              Device device = kCpu, const data::LoaderPart& part = {});

/// The recipe's precision with its cast policy. Throws Error.
Precision precision_of(const Recipe& recipe);
/// The same recipe in float32, or in float64 if that is its precision, for results computed once before a network is
/// converted, as running statistics and folded weights.
Recipe in_full_precision(const Recipe& recipe);
/// The network's options in the recipe, without the classes, and without a default for the size of patches.
models::ModelOptions model_options(const Recipe& recipe);
/// Makes the network, initialized, in the recipe's precision and memory format.
std::shared_ptr<nn::Module> make_model(const Recipe& recipe, int64_t num_classes, bool initialize = true);
/// Makes the optimizer. Matrices and convolution weights get weight decay, norms and biases their own from the recipe.
std::unique_ptr<nn::Optimizer> make_optimizer(const Recipe& recipe, const nn::Module& model);

/// The recipe's training loss of a batch, of rank 0. logits: (N, C); target: class numbers (N), or the share of each
/// class (N, C) in the logits' dtype.
Tensor training_loss(const Recipe& recipe, const Tensor& logits, const Tensor& target);

/// Clips the gradients by the recipe. A scaled loss (Optimizer::grad_scale()) gives the same clipping as an unscaled
/// one. `optimizer` holds the parameters of `model`. As in timm, agc leaves out the last two parameters, the
/// classifier's.
void clip_gradients(const Recipe& recipe, const nn::Module& model, const nn::Optimizer& optimizer);

/// The learning rate that the schedule's factors multiply: Recipe::lr, or lr_base · (images per update / lr_base_size),
/// with the root of that ratio for the lr_base_scale "sqrt". This is timm's rule.
double base_lr(const Recipe& recipe);

/// Learning rate and momentum of each step.
struct Schedules {
  nn::Schedule lr;        ///< factor on base_lr()
  nn::Schedule momentum;  ///< the value itself; empty if it stays the same
};
/// The warm-up of poly and multistep, and with warmup_lr also of cosine, step and constant, is timm's: from warmup_lr
/// (default 1e-5) in equal steps. Without warmup_lr, cosine rises from a hundredth of the rate and has the rest of the
/// run for its curve; step and constant reach k / n of their rate in step k of n.
///
/// Milestones of multistep are timm's: milestone m decays the rate when m epochs less one step are done, or, once an
/// epoch, when m - 1 epochs are done (with warmup_prefix counted after the warm-up). PyTorch's MultiStepLR decays a
/// step, or an epoch, later.
///
/// A run shorter than its warm-up ends inside it. Throws Error for a cool-down that leaves no step before it.
Schedules make_schedules(const Recipe& recipe, int64_t steps, int64_t steps_per_epoch);

/// Interpolations of test images: bilinear, bicubic.
std::vector<std::string> interpolation_names();
/// The same, and random.
std::vector<std::string> train_interpolation_names();
/// How JPEGs are decoded: exact, scaled.
std::vector<std::string> decode_names();

/// Throws Error "train: name: expected …, got …" for the first invalid value of the recipe's augmentation, and for two
/// that exclude each other.
void check_augmentation(const Recipe& recipe);

// These functions expect a recipe that passed the check.

/// The transform of training images.
data::TransformOptions train_transform(const Recipe& recipe);
/// The transform of test images.
data::TransformOptions test_transform(const Recipe& recipe);
data::MixOptions mix_options(const Recipe& recipe);

/// The augmentation for people: "random crop by 2 pixels, flip, rand-m9", "none".
std::string augmentation_text(const Recipe& recipe);

}  // namespace norma::train
