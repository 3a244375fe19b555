#include "core/tape.h"
#include "error_text.h"
#include "ops/loss/loss.h"
#include "ops/pointwise/pointwise.h"
#include "ops/reduce/reduce.h"
#include "ops/shape/copy.h"
#include "support.h"

#include <iterator>
#include <sstream>
#include <string>
#include <vector>

// cross_entropy with class weights, ignored rows and label smoothing together.

using namespace norma;
using namespace norma::test;

namespace {

/// ((torch.arange(20.).double() * 7) % 11 - 5) / 3
Tensor example_logits() {
  std::vector<double> values;
  for (int i = 0; i < 20; ++i) {
    values.push_back((i * 7 % 11 - 5) / 3.0);
  }
  return from_vector(values, {4, 5});
}

/// ((torch.arange(20.).double() * 5) % 7 + 1) / 10
Tensor example_probabilities() {
  std::vector<double> values;
  for (int i = 0; i < 20; ++i) {
    values.push_back((i * 5 % 7 + 1) / 10.0);
  }
  return from_vector(values, {4, 5});
}

/// The float64 numbers in a text.
Tensor numbers(const std::string& text, const Sizes& sizes) {
  std::istringstream in(text);
  return from_vector(std::vector<double>(std::istream_iterator<double>(in), {}), sizes);
}

Tensor example_weight() {
  return from_vector<double>({0.5, 2, 1, 0.25, 1.5}, {5});
}

}  // namespace

TEST_CASE("cross_entropy: class weights, ignore_index and label smoothing are those of PyTorch") {
  // l = F.cross_entropy(x, t or p, weight=w, ignore_index=3, label_smoothing=smoothing, reduction=reduction) with
  // t = [2, 3, 0, 4]; the gradients are those of l, or of (l * torch.tensor([1., -2., 0.5, 3.])).sum() where l is a
  // vector   (PyTorch 2.15)
  struct Case {
    bool class_numbers;
    double smoothing;
    Reduction reduction;
    std::string loss, dx, dp;
  };
  const std::vector<Case> cases = {
      {true, 0.0, Reduction::mean, "3.00900898913",
       "0.00674064915717 0.0695113165754 -0.315010349217 0.188951348719 0.0498070347655 0 0 0 0 0 -0.152878279466 "
       "0.00363457940529 0.0374807223709 0.00987981115149 0.101883166538 0.102306272291 0.0269676405871 "
       "0.278097280905 0.0733056473643 -0.480676841147",
       ""},
      {true, 0.0, Reduction::sum, "9.02702696739",
       "0.0202219474715 0.208533949726 -0.945031047652 0.566854046158 0.149421104297 0 0 0 0 0 -0.458634838398 "
       "0.0109037382159 0.112442167113 0.0296394334545 0.305649499615 0.306918816872 0.0809029217613 0.834291842715 "
       "0.219916942093 -1.44203052344",
       ""},
      {true, 0.0, Reduction::none, "2.90098675591 0 1.24608453953 4.87995567195",
       "0.0202219474715 0.208533949726 -0.945031047652 0.566854046158 0.149421104297 0 0 0 0 0 -0.229317419199 "
       "0.00545186910793 0.0562210835564 0.0148197167272 0.152824749808 0.920756450616 0.242708765284 2.50287552814 "
       "0.659750826279 -4.32609157032",
       ""},
      {true, 0.1, Reduction::mean, "2.94406751012",
       "0.00344101906962 0.056525539825 -0.28825206763 0.188229438796 0.0400560699393 0 0 0 0 0 -0.138028223541 "
       "-0.00929895019346 0.0349369351651 0.00929992371149 0.103090314858 0.0959037507886 0.0128252780362 "
       "0.263087695811 0.0694398112767 -0.441256535913",
       ""},
      {true, 0.1, Reduction::sum, "8.83220253036",
       "0.0103230572089 0.169576619475 -0.86475620289 0.564688316389 0.120168209818 0 0 0 0 0 -0.414084670622 "
       "-0.0278968505804 0.104810805495 0.0278997711345 0.309270944573 0.287711252366 0.0384758341085 0.789263087434 "
       "0.20831943383 -1.32376960774",
       ""},
      {true, 0.1, Reduction::none, "2.83049168969 0 1.35815383888 4.64355700179",
       "0.0103230572089 0.169576619475 -0.86475620289 0.564688316389 0.120168209818 0 0 0 0 0 -0.207042335311 "
       "-0.0139484252902 0.0524054027476 0.0139498855672 0.154635472286 0.863133757097 0.115427502325 2.3677892623 "
       "0.624958301491 -3.97130882321",
       ""},
      {false, 0.0, Reduction::mean, "5.05457902051",
       "0.00140258888665 -0.156632909563 -0.0622088452609 0.377212156734 -0.159772990796 -0.0433006167562 "
       "0.0479890030759 0.0271893345892 -0.0237430407621 -0.0081346801468 0.0210187422817 -0.337869591235 "
       "9.19109129967e-05 0.0142238697181 0.302535068322 0.0388157279233 -0.169998499847 0.259383225007 "
       "0.0378025326928 -0.166002985776",
       "0.487623344489 0.783826711287 0.725246688977 0.0354783389109 0.712870033466 0.387151376641 0.381938839896 "
       "0.524302753282 0.214409021654 0.411454129922 0.311521134883 1.9127512062 0.373042269766 0.176593900775 "
       "0.18456340465 0.198329639329 1.45998522398 0.146659278658 0.119998152998 1.21998891799"},
      {false, 0.0, Reduction::sum, "20.218316082",
       "0.00561035554662 -0.626531638253 -0.248835381043 1.50884862693 -0.639091963185 -0.173202467025 0.191956012304 "
       "0.108757338357 -0.0949721630485 -0.0325387205872 0.084074969127 -1.35147836494 0.000367643651987 "
       "0.0568954788724 1.21014027329 0.155262911693 -0.679993999387 1.03753290003 0.151210130771 -0.664011943104",
       "1.95049337795 3.13530684515 2.90098675591 0.141913355644 2.85148013386 1.54860550656 1.52775535959 "
       "2.09721101313 0.857636086615 1.64581651969 1.24608453953 7.6510048248 1.49216907907 0.7063756031 "
       "0.738253618598 0.793318557315 5.83994089593 0.58663711463 0.479992611991 4.87995567195"},
      {false, 0.0, Reduction::none, "5.26104691208 2.61525872231 6.63674286759 5.70526758005",
       "0.00561035554662 -0.626531638253 -0.248835381043 1.50884862693 -0.639091963185 0.34640493405 -0.383912024607 "
       "-0.217514676714 0.189944326097 0.0650774411744 0.0420374845635 -0.67573918247 0.000183821825993 "
       "0.0284477394362 0.605070136644 0.46578873508 -2.03998199816 3.11259870008 0.453630392314 -1.99203582931",
       "1.95049337795 3.13530684515 2.90098675591 0.141913355644 2.85148013386 -3.09721101313 -3.05551071917 "
       "-4.19442202625 -1.71527217323 -3.29163303938 0.623042269766 3.8255024124 0.746084539533 0.35318780155 "
       "0.369126809299 2.37995567195 17.5198226878 1.75991134389 1.43997783597 14.6398670158"},
      {false, 0.1, Reduction::mean, "4.76447580581",
       "-0.000706843880884 -0.145495602427 -0.0595450257357 0.353120859772 -0.147373387729 -0.0402847108214 "
       "0.0454188353113 0.0226938600314 -0.0217690421447 -0.00605894237648 0.0185885390376 -0.313510185855 "
       "0.000985933595119 0.0131075530026 0.28082816022 0.0378052344262 -0.161582848731 0.243045009754 "
       "0.0366208259102 -0.155888221359",
       "0.43886101004 0.705444040159 0.652722020079 0.0319305050198 0.641583030119 0.348436238977 0.343744955907 "
       "0.471872477953 0.192968119488 0.37030871693 0.280369021395 1.72147608558 0.33573804279 0.158934510697 "
       "0.166107064185 0.178496675396 1.31398670158 0.131993350792 0.107998337698 1.09799002619"},
      {false, 0.1, Reduction::sum, "19.0579032233",
       "-0.00282737552354 -0.581982409706 -0.238180102943 1.41248343909 -0.589493550915 -0.161138843286 "
       "0.181675341245 0.0907754401255 -0.087076168579 -0.0242357695059 0.0743541561506 -1.25404074342 "
       "0.00394373438048 0.0524302120106 1.12331264088 0.151220937705 -0.646331394925 0.972180039015 0.146483303641 "
       "-0.623552885435",
       "1.75544404016 2.82177616063 2.61088808032 0.127722020079 2.56633212048 1.39374495591 1.37497982363 "
       "1.88748991181 0.771872477953 1.48123486772 1.12147608558 6.88590434232 1.34295217116 0.63573804279 "
       "0.664428256738 0.713986701584 5.25594680633 0.527973403167 0.431993350792 4.39196010475"},
      {false, 0.1, Reduction::none, "4.95454583024 2.50727333979 6.20974633413 5.38633771908",
       "-0.00282737552354 -0.581982409706 -0.238180102943 1.41248343909 -0.589493550915 0.322277686571 -0.36335068249 "
       "-0.181550880251 0.174152337158 0.0484715390119 0.0371770780753 -0.62702037171 0.00197186719024 "
       "0.0262151060053 0.561656320439 0.453662813115 -1.93899418478 2.91654011704 0.439449910922 -1.8706586563",
       "1.75544404016 2.82177616063 2.61088808032 0.127722020079 2.56633212048 -2.78748991181 -2.74995964725 "
       "-3.77497982363 -1.54374495591 -2.96246973544 0.56073804279 3.44295217116 0.671476085579 0.317869021395 "
       "0.332214128369 2.14196010475 15.767840419 1.5839202095 1.29598005238 13.1758803143"},
  };
  const Tensor classes = from_vector<int64_t>({2, 3, 0, 4}, {4});
  for (const Case& test : cases) {
    CAPTURE(test.class_numbers);
    CAPTURE(test.smoothing);
    CAPTURE(static_cast<int>(test.reduction));
    for (const DType dtype : {DType::float64, DType::float32}) {
      for (const Layout layout : kLayouts) {
        const Tensor x = in_layout(to(example_logits(), dtype), layout).set_requires_grad();
        const Tensor p = in_layout(to(example_probabilities(), dtype), layout).set_requires_grad();
        const Tensor weight = in_layout(to(example_weight(), dtype), layout);
        const Tensor l = cross_entropy(
            x, test.class_numbers ? classes : p,
            {.label_smoothing = test.smoothing, .reduction = test.reduction, .weight = weight, .ignore_index = 3});
        const double tolerance = dtype == DType::float64 ? 1e-11 : 2e-6;
        CHECK(max_difference(l, numbers(test.loss, l.sizes())) <= tolerance * 10);
        const Tensor dl = l.rank() == 0 ? ones_like(l) : to(from_vector<double>({1, -2, 0.5, 3}, {4}), dtype);
        backward(l, dl);
        CHECK(max_difference(x.grad(), numbers(test.dx, {4, 5})) <= tolerance * 10);
        if (!test.class_numbers) {
          CHECK(max_difference(p.grad(), numbers(test.dp, {4, 5})) <= tolerance * 10);
        }
      }
    }
  }
}

TEST_CASE("cross_entropy: gradients with class weights and ignored rows, once and twice") {
  const Tensor x = random_tensor({5, 7}, 1);
  const Tensor classes = from_vector<int64_t>({6, -100, 3, 3, -100}, {5});
  const Tensor probabilities = softmax(random_tensor({5, 7}, 2), 1);
  const Tensor weight = add(abs(random_tensor({7}, 3)), 0.1);
  for (const double smoothing : {0.0, 0.2}) {
    for (const Reduction reduction : {Reduction::mean, Reduction::sum, Reduction::none}) {
      const CrossEntropyOptions options{.label_smoothing = smoothing, .reduction = reduction, .weight = weight};
      const std::string name = fmt::format("smoothing {}, reduction {}", smoothing, static_cast<int>(reduction));
      check_gradients(
          "classes, " + name, [&](const Tensors& in) { return Tensors{cross_entropy(in[0], classes, options)}; }, {x},
          true);
      check_gradients(
          "probabilities, " + name, [&](const Tensors& in) { return Tensors{cross_entropy(in[0], in[1], options)}; },
          {x, probabilities}, true);
    }
  }
}

TEST_CASE("cross_entropy: ignored rows have no loss and no gradient, whatever their logits are") {
  const double nan = std::nan("");
  const Tensor x = from_vector<double>({1, 2, nan, nan, 3, 1}, {3, 2}).set_requires_grad();
  const Tensor classes = from_vector<int64_t>({1, -1, 0}, {3});
  const Tensor loss = cross_entropy(x, classes, {.ignore_index = -1});
  const Tensor others = cross_entropy(from_vector<double>({1, 2, 3, 1}, {2, 2}), from_vector<int64_t>({1, 0}, {2}));
  CHECK(max_difference(loss, others) == 0);
  loss.backward();
  const std::vector<double> gradient = x.grad().to_vector<double>();
  CHECK(gradient[2] == 0);
  CHECK(gradient[3] == 0);
  CHECK(gradient[0] > 0);
  const Tensor recorded = grad({cross_entropy(x, classes, {.ignore_index = -1})}, {x}, {}, {.create_graph = true})[0];
  CHECK(max_difference(recorded, x.grad()) < 1e-15);

  // PyTorch: F.cross_entropy(x, torch.tensor([-100, -100, -100])) is nan, and its gradient 0.
  const Tensor y = random_tensor({3, 2}, 1).set_requires_grad();
  const Tensor none_left = cross_entropy(y, from_vector<int64_t>({-100, -100, -100}, {3}));
  CHECK(std::isnan(none_left.item<double>()));
  for (const bool create_graph : {false, true}) {
    CHECK(max_difference(grad({none_left}, {y}, {}, {.retain_graph = true, .create_graph = create_graph})[0],
                         zeros_like(y)) == 0);
  }
}

TEST_CASE("cross_entropy: the weights of classes that are no target do not enter without smoothing") {
  const Tensor classes = from_vector<int64_t>({0, 1}, {2});
  for (const DType dtype : {DType::float32, DType::float64}) {
    const Tensor x = random_tensor({2, 3}, 1, dtype).set_requires_grad();
    const auto results = [&](double of_third, bool create_graph) {
      const Tensor weight = from_vector<double>({0.5, 2, of_third}, {3});
      const Tensor loss = cross_entropy(x, classes, {.weight = to(weight, dtype)});
      return Tensors{loss, grad({loss}, {x}, {}, {.create_graph = create_graph})[0]};
    };
    for (const bool create_graph : {false, true}) {
      for (const double infinite : {INFINITY, -INFINITY}) {
        const Tensors expected = results(1, create_graph);
        const Tensors got = results(infinite, create_graph);
        CHECK(max_difference(got[0], expected[0]) == 0);
        CHECK(max_difference(got[1], expected[1]) == 0);
        CHECK(differ(got[1], zeros_like(x), 0.01));
      }
    }
  }
}

TEST_CASE("cross_entropy: bfloat16 logits take float32 class weights") {
  const Tensor x = to(example_logits(), DType::bfloat16);
  const Tensor classes = from_vector<int64_t>({2, 3, 0, 4}, {4});
  const Tensor loss = cross_entropy(x, classes, {.weight = to(example_weight(), DType::float32)});
  const Tensor wide = cross_entropy(to(x, DType::float64), classes, {.weight = example_weight()});
  CHECK(loss.dtype() == DType::bfloat16);
  CHECK(max_difference(to(loss, DType::float64), wide) <= 0.004 * wide.item<double>());
}

TEST_CASE("cross_entropy: error texts of its options") {
  const Tensor x = zeros({4, 10});
  const Tensor classes = zeros({4}, {.dtype = DType::int64});
  CHECK(error_of([&] { cross_entropy(x, classes, {.weight = ones({4})}); }) ==
        "cross_entropy: weight: expected sizes [10], got [4]");
  CHECK(error_of([&] { cross_entropy(x, classes, {.weight = arange(10)}); }) ==
        "cross_entropy: weight: expected a floating dtype, got int64");
  CHECK(error_of([&] { cross_entropy(x, classes, {.weight = ones({10}).set_requires_grad()}); }) ==
        "cross_entropy: weight: expected constants, got a tensor that requires a gradient");
}
