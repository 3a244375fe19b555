#include "lab/report/page_style.h"

#include <fmt/format.h>

namespace norma::lab {

namespace {

std::string variables_of(const Theme& theme) {
  std::string css = fmt::format("--text:{};--soft:{};--warn:{};--line:{};--back:{};--panel:{};--focus:{};", theme.text,
                                theme.soft, theme.warn, theme.line, theme.back, theme.panel, theme.focus);
  for (size_t i = 0; i < theme.series.size(); ++i) {
    css += fmt::format("--c{}:{};", i, theme.series[i]);
  }
  return css;
}

constexpr std::string_view kPage = R"css(
*{box-sizing:border-box}
html{-webkit-text-size-adjust:100%;scroll-padding-top:1rem}
body{font:1rem/1.55 system-ui,-apple-system,"Segoe UI",Roboto,"Noto Sans",sans-serif;color:var(--text);
background:var(--back);max-width:70rem;margin:0 auto;padding:1.5rem clamp(1rem,4vw,2.5rem) 4rem}
a{color:var(--c0);text-underline-offset:.15em}
:focus-visible{outline:3px solid var(--focus);outline-offset:2px;border-radius:2px}
.skip{position:absolute;left:-100vw;top:.5rem;background:var(--back);padding:.5rem 1rem}
.skip:focus{left:.5rem;z-index:2}
h1{font-size:1rem;font-weight:600;color:var(--soft);margin:0 0 .6rem}
h2{font-size:1.3rem;line-height:1.3;margin:3rem 0 .8rem;padding-top:.8rem;border-top:1px solid var(--line)}
h3{font-size:1.05rem;margin:1.6rem 0 .5rem}
.answer{font-size:clamp(1.35rem,1rem + 2vw,2rem);line-height:1.25;font-weight:650;letter-spacing:-.01em;margin:0 0 1rem;
max-width:34em;text-wrap:balance}
.soft,figcaption p{color:var(--soft)}
.lead{max-width:46rem;margin:.5rem 0}
ul.answers{margin:.6rem 0;padding-left:1.2rem;max-width:52rem}
nav ul,.key{display:flex;flex-wrap:wrap;gap:.3rem 1.2rem;list-style:none;padding:0;margin:1.2rem 0 0}
nav a{display:inline-block;padding:.2rem 0}
.key{margin:1.2rem 0;gap:.8rem 2rem}
.key dt{font-size:.85rem;color:var(--soft)}.key dd{margin:0;font-weight:600;overflow-wrap:anywhere}
.note{max-width:52rem;color:var(--soft)}
)css";

constexpr std::string_view kTables = R"css(
table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums}
caption{text-align:left;color:var(--soft);padding-bottom:.5rem}
th,td{padding:.45rem .6rem;text-align:right;white-space:nowrap;border-bottom:1px solid var(--line);vertical-align:baseline}
thead th{font-size:.85rem;font-weight:600;color:var(--soft);vertical-align:bottom}
tbody th{font-weight:600;overflow-wrap:anywhere;min-width:7rem}
.text,.facts th,.facts td,td.problem{text-align:left;white-space:normal}
tr.first>*{border-top:2px solid var(--soft)}
.problem{color:var(--warn)}
.aside{display:block;font-size:.85rem;color:var(--soft);white-space:normal;max-width:9rem;margin-left:auto}
.facts th{font-weight:400;color:var(--soft);width:12rem}
.facts td{overflow-wrap:anywhere}
.wide{overflow-x:auto;margin:1rem 0}
.dense{font-size:.875rem}
.dense th[scope=row]{text-align:left;white-space:normal;min-width:7rem}
.dense thead th{white-space:normal;min-width:4.2rem}
@media (max-width:66rem){
.results,.results tbody,.results caption{display:block}
.results thead{position:absolute;clip-path:inset(50%);width:1px;height:1px;overflow:hidden}
.results tr{display:grid;grid-template-columns:minmax(0,1fr) minmax(0,1fr);gap:.1rem .8rem;padding:.7rem 0;border-bottom:1px solid var(--line)}
.results tr.first{border-top:2px solid var(--soft)}
.results tr.first>*{border-top:0}
.results th,.results td{display:block;border:0;padding:.1rem 0;text-align:left;white-space:normal;overflow-wrap:anywhere}
.results th,.results td.problem,.results .all{grid-column:1/-1}
.results th{font-size:1.05rem}
.results .aside{max-width:none}
.results td[data-head]::before{content:attr(data-head);display:block;font-size:.8rem;color:var(--soft)}
.facts tr{display:block;padding:.4rem 0;border-bottom:1px solid var(--line)}
.facts th,.facts td{display:block;width:auto;border:0;padding:0}
}
)css";

constexpr std::string_view kCharts = R"css(
.figures{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,27rem),1fr));gap:1rem;margin:1rem 0}
figure{margin:0;padding:1rem;background:var(--panel);border-radius:10px;container-type:inline-size;min-width:0}
figcaption{font-weight:600;margin-bottom:.8rem}figcaption p{font-weight:400;font-size:.9rem;margin:.1rem 0 0}
svg{display:block}
.grid,.axis,.curve,.dot,.part,.error{fill:none;vector-effect:non-scaling-stroke}
.grid{stroke:var(--line);stroke-width:1}.axis{stroke:var(--soft);stroke-width:1.5}
.curve{stroke:currentColor;stroke-width:2.25;stroke-linejoin:round;stroke-linecap:round}
.curve.faint{stroke-width:1;opacity:.3;stroke-dasharray:none}
.d1{stroke-dasharray:9 5}.d2{stroke-dasharray:1 5}.d3{stroke-dasharray:12 5 1 5}
.dot{stroke:currentColor;stroke-width:13;stroke-linecap:round;stroke-dasharray:none}
.part{stroke:currentColor;stroke-width:6;stroke-linecap:round;stroke-dasharray:none;opacity:.45}
.error{stroke:currentColor;stroke-width:2;stroke-dasharray:none}
.bar{fill:currentColor}
.plot{position:relative;height:19rem;margin:1.6rem 1rem 3.2rem 3.4rem;border-bottom:1.5px solid var(--soft);
font-size:.8rem;color:var(--soft)}
.plot>svg{position:absolute;inset:0;width:100%;height:100%;overflow:hidden}
.plot.points>svg{overflow:visible}
.y-axis span{position:absolute;right:100%;padding-right:.45rem;transform:translateY(50%);white-space:nowrap}
.y-axis b{position:absolute;bottom:calc(100% + .5rem);left:-3rem;font-weight:400;white-space:nowrap}
.x-axis span{position:absolute;top:100%;padding-top:.3rem;transform:translateX(-50%);white-space:nowrap}
.x-axis b{position:absolute;top:calc(100% + 1.4rem);right:0;font-weight:400;white-space:nowrap}
.names span{position:absolute;transform:translateY(50%);padding:0 .7rem;white-space:nowrap;max-width:50%;overflow:hidden;
text-overflow:ellipsis;font-weight:600}
.legend{display:flex;flex-wrap:wrap;gap:.2rem 1.2rem;list-style:none;margin:0;padding:0;font-size:.9rem}
.legend li{display:flex;align-items:center;gap:.45rem;overflow-wrap:anywhere}
.sample{width:2.5rem;height:.7rem;flex:none}
.rows{position:relative;font-size:.9rem}
.rows ul{list-style:none;margin:0 0 3rem;padding:0}
.rows li{height:2.1rem;display:flex;justify-content:space-between;align-items:center;gap:.6rem}
.rows li span{overflow:hidden;text-overflow:ellipsis;display:-webkit-box;-webkit-line-clamp:2;-webkit-box-orient:vertical;
line-height:1.05rem;overflow-wrap:anywhere}
.rows li span:first-child{width:9.4rem}
.rows li span:last-child{width:8.4rem}
.drawing{position:absolute;top:0;left:10rem;right:9.6rem;height:calc(var(--rows)*2.1rem);font-size:.8rem;
color:var(--soft);border-bottom:1.5px solid var(--soft)}
.drawing>svg{position:absolute;inset:0;width:100%;height:100%;overflow:visible}
@container (max-width:36rem){
.rows li{height:3.4rem;align-items:flex-start;padding-top:.2rem}
.rows li span:first-child,.rows li span:last-child{width:auto;max-width:65%;-webkit-line-clamp:1}
.rows li span:last-child{flex:none}
.drawing{left:.5rem;right:.8rem;top:.75rem;height:calc(var(--rows)*3.4rem)}
.rows ul{margin-bottom:3.75rem}
.minor{display:none}
.plot{height:16rem}
}
)css";

constexpr std::string_view kDetails = R"css(
dl.meaning dt{font-weight:600;margin-top:.6rem}dl.meaning dd{margin:0;color:var(--soft);max-width:52rem}
details{border-bottom:1px solid var(--line)}
summary{cursor:pointer;padding:.5rem 0;overflow-wrap:anywhere}
details>:not(summary){margin-left:1rem}
details details{margin-left:1rem}
details.fold{border:0}
pre{background:var(--panel);padding:.8rem;border-radius:8px;white-space:pre-wrap;overflow-wrap:anywhere;margin:.5rem 0 1rem;
font-size:.875rem}
code,pre{font-family:ui-monospace,"DejaVu Sans Mono",Menlo,Consolas,monospace}
footer{margin-top:3rem;color:var(--soft);font-size:.9rem}
@media print{
@page{margin:14mm}
body{max-width:none;padding:0;font-size:10pt}
nav,.skip{display:none}
h2{break-after:avoid;margin-top:1.5rem}
figure,tr,li,pre{break-inside:avoid}
figure{border:1px solid var(--line);background:none;print-color-adjust:exact;-webkit-print-color-adjust:exact}
thead{display:table-header-group}
}
)css";

}  // namespace

const Theme& light_theme() {
  static constexpr Theme kTheme{
      .text = "#1b2027",
      .soft = "#545d68",
      .warn = "#b3261e",
      .line = "#dbe0e6",
      .back = "#ffffff",
      .panel = "#f5f7fa",
      .focus = "#0067a8",
      .series = {"#0067a8", "#b54708", "#00704f", "#9c3587", "#7a5c00", "#3b5bdb", "#6f42c1", "#57606a"}};
  return kTheme;
}

const Theme& dark_theme() {
  static constexpr Theme kTheme{
      .text = "#e8ebef",
      .soft = "#a3adb8",
      .warn = "#ff8a80",
      .line = "#333c47",
      .back = "#12161b",
      .panel = "#1a2027",
      .focus = "#5cb8f0",
      .series = {"#5cb8f0", "#ff9b52", "#3fcf9b", "#f08fc8", "#e8c547", "#93a8ff", "#bfa3ff", "#aab3bd"}};
  return kTheme;
}

std::string page_style() {
  // Print uses the light theme, since paper is white.
  std::string css = fmt::format(
      ":root{{color-scheme:light dark;{}}}\n@media screen and (prefers-color-scheme:dark){{:root{{{}}}}}\n"
      "@media print{{:root{{color-scheme:light}}}}",
      variables_of(light_theme()), variables_of(dark_theme()));
  css += fmt::format("{}{}{}", kPage, kTables, kCharts);
  for (size_t i = 0; i < light_theme().series.size(); ++i) {
    css += fmt::format(".s{0}{{color:var(--c{0})}}", i);
  }
  css += kDetails;
  return css;
}

}  // namespace norma::lab
