// SPDX-License-Identifier: Apache-2.0
#include "elastic/simulate/picture.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <numeric>

#include "common/text.h"

namespace bellows {
namespace {

// All in pixels, unless the browser scales the picture. The plot is 1200 wide, a moment for each.
constexpr int kWidth = 1200;
constexpr int kHeight = 480;
constexpr int kLeft = 70;
constexpr int kRight = 30;
constexpr int kTop = 12;
constexpr int kBottom = 52;

// Safe inside an element as well as inside a quoted attribute.
std::string escaped(std::string_view text) {
  // What is longer would fill a tooltip, and a picture has thousands of them.
  constexpr std::size_t kMost = 120;
  std::string safe;
  for (const char c : one_line(text, kMost)) {
    switch (c) {
      case '&':
        safe += "&amp;";
        break;
      case '<':
        safe += "&lt;";
        break;
      case '>':
        safe += "&gt;";
        break;
      case '"':
        safe += "&quot;";
        break;
      case '\'':
        safe += "&#39;";
        break;
      default:
        safe += c;
    }
  }
  return safe;
}

// Distinct for people who see few colours too, and readable on white and on black; beyond those,
// hues that are far from their neighbours.
std::string colour(std::size_t i) {
  constexpr std::string_view kColours[] = {"#0072b2", "#e69f00", "#009e73", "#cc79a7",
                                           "#56b4e9", "#d55e00", "#b5a800", "#8c6bb1"};
  if (i < std::size(kColours)) return std::string(kColours[i]);
  return fmt::format("hsl({},60%,50%)", i * 137 % 360);
}

constexpr std::string_view kStyle = R"(
:root{color-scheme:light dark;--back:#fff;--ink:#222;--grid:#ddd}
@media(prefers-color-scheme:dark){:root{--back:#16181c;--ink:#ddd;--grid:#3a3d44}}
body{background:var(--back);color:var(--ink);font:14px sans-serif;margin:20px;max-width:1300px}
h1{font-size:18px}
h2{font-size:15px}
svg{width:100%;height:auto;font:13px sans-serif}
svg text{fill:var(--ink)}
.grid{stroke:var(--grid);stroke-width:1}
.axis{stroke:var(--ink);stroke-width:1;fill:none}
.areas path{stroke:var(--back);stroke-width:.5;vector-effect:non-scaling-stroke}
.areas path:hover{stroke:var(--ink);stroke-width:2}
.line{fill:none;stroke-width:2}
.legend{display:flex;flex-wrap:wrap;gap:4px 18px;list-style:none;padding:0}
.legend i{display:inline-block;width:12px;height:12px;margin-right:6px}
)";

std::string figure(std::string_view title, const std::vector<std::string>& legend,
                   std::string_view drawing) {
  std::string items;
  for (std::size_t i = 0; i < legend.size(); ++i)
    items +=
        fmt::format("<li><i style=\"background:{}\"></i>{}</li>\n", colour(i), escaped(legend[i]));
  return fmt::format(
      "<ul class=\"legend\">\n{}</ul>\n"
      "<svg viewBox=\"0 0 {} {}\" role=\"img\" aria-label=\"{}\">\n{}</svg>\n",
      items, kLeft + kWidth + kRight, kTop + kHeight + kBottom, escaped(title), drawing);
}

std::string page(std::string_view title, std::string_view body) {
  return fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width\">\n"
      "<title>{0}</title>\n<style>{1}</style>\n</head>\n<body>\n<h1>{0}</h1>\n"
      "{2}</body>\n</html>\n",
      escaped(title), kStyle, body);
}

/// Values along one side of the plot and where they are.
class Axis {
 public:
  Axis(double from, double to, bool logarithmic) : logarithmic_(logarithmic) {
    // A chart of one point, or of none, has a middle too.
    if (!(to > from)) {
      const double half = std::max(1.0, std::abs(from));
      to = logarithmic ? from * 2 : from + half;
      from = logarithmic ? from / 2 : from - half;
    }
    from_ = from;
    to_ = to;
  }

  /// From 0 to 1.
  double part(double value) const {
    if (logarithmic_) return std::log(value / from_) / std::log(to_ / from_);
    return (value - from_) / (to_ - from_);
  }
  std::vector<double> ticks() const {
    // Less than a power of 10 may have none of the marks that a logarithmic axis usually has.
    return logarithmic_ && to_ >= 10 * from_ ? by_factors() : by_steps();
  }

 private:
  // 5 to 12 of them.
  std::vector<double> by_steps() const {
    const double rough = (to_ - from_) / 12;
    const double power = std::pow(10, std::floor(std::log10(rough)));
    double step = 10 * power;
    for (const double factor : {5, 2, 1})
      if (factor * power >= rough) step = factor * power;
    std::vector<double> ticks;
    const auto last = static_cast<long>(std::floor(to_ / step + 1e-9));
    for (auto i = static_cast<long>(std::ceil(from_ / step - 1e-9)); i <= last; ++i)
      ticks.push_back(static_cast<double>(i) * step);
    return ticks;
  }

  std::vector<double> by_factors() const {
    // 1, 2 and 5 of each power of 10, where that is not too many.
    const double decades = std::log10(to_ / from_);
    const auto every = static_cast<int>(std::ceil(decades / 12));
    std::vector<double> ticks;
    for (auto p = static_cast<int>(std::floor(std::log10(from_))); std::pow(10, p) <= to_; ++p)
      for (const double factor : {1, 2, 5}) {
        const double tick = factor * std::pow(10, p);
        if (tick < from_ * (1 - 1e-9) || tick > to_ * (1 + 1e-9)) continue;
        if (decades <= 4 || (factor == 1 && p % every == 0)) ticks.push_back(tick);
      }
    return ticks;
  }

  double from_ = 0;
  double to_ = 1;
  bool logarithmic_;
};

double x_of(const Axis& axis, double value) { return kLeft + kWidth * axis.part(value); }
double y_of(const Axis& axis, double value) { return kTop + kHeight * (1 - axis.part(value)); }

std::string grid(const Axis& x, const Axis& y, std::string_view x_title, std::string_view y_title) {
  constexpr int kEnd = kLeft + kWidth;
  constexpr int kFloor = kTop + kHeight;
  std::string text;
  for (const double tick : x.ticks())
    text += fmt::format(
        "<path class=\"grid\" d=\"M{0:.1f} {1}V{2}\"/>"
        "<text x=\"{0:.1f}\" y=\"{3}\" text-anchor=\"middle\">{4:.6g}</text>\n",
        x_of(x, tick), kTop, kFloor, kFloor + 18, tick);
  for (const double tick : y.ticks())
    text += fmt::format(
        "<path class=\"grid\" d=\"M{0} {1:.1f}H{2}\"/>"
        "<text x=\"{3}\" y=\"{4:.1f}\" text-anchor=\"end\">{5:.6g}</text>\n",
        kLeft, y_of(y, tick), kEnd, kLeft - 8, y_of(y, tick) + 4, tick);
  text += fmt::format(
      "<text x=\"{}\" y=\"{}\" text-anchor=\"middle\">{}</text>\n"
      "<text transform=\"translate(16 {}) rotate(-90)\" text-anchor=\"middle\">{}</text>\n",
      kLeft + kWidth / 2, kFloor + 42, escaped(x_title), kTop + kHeight / 2, escaped(y_title));
  return text;
}

std::string frame() {
  return fmt::format("<path class=\"axis\" d=\"M{} {}V{}H{}\"/>\n", kLeft, kTop, kTop + kHeight,
                     kLeft + kWidth);
}

/// The spans as bands on top of one another. A unit is a moment to the right and a GPU upwards.
class Stack {
 public:
  explicit Stack(double end_s) : moment_s_(end_s / kWidth), tops_(kWidth) {}

  /// Puts it on top of what is there already; "" if no moment shows it.
  std::string add(const HeldSpan& span) {
    const std::size_t from = moment(span.from_s);
    const std::size_t to = moment(span.to_s);
    if (from >= to) return "";
    // Along the bottom to the right, and back along the top.
    std::string there = fmt::format("M{} {}", from, tops_[from]), back;
    for (std::size_t at = from; at < to;) {
      const std::uint32_t bottom = tops_[at];
      std::size_t next = at;
      for (; next < to && tops_[next] == bottom; ++next) tops_[next] += span.gpus;
      const auto step = next < to ? static_cast<std::int64_t>(tops_[next]) - bottom : 0;
      there += fmt::format("h{}", next - at);
      if (step != 0) there += fmt::format("v{}", step);
      back.insert(
          0, step == 0 ? fmt::format("h-{}", next - at) : fmt::format("v{}h-{}", -step, next - at));
      at = next;
    }
    return fmt::format("{}v{}{}z", there, span.gpus, back);
  }

 private:
  // The first one that is not before this time. Each moment is in the middle of its pixel.
  std::size_t moment(double time_s) const {
    const double first = std::ceil(time_s / moment_s_ - 0.5);
    return static_cast<std::size_t>(std::clamp(first, 0.0, static_cast<double>(kWidth)));
  }

  double moment_s_;
  std::vector<std::uint32_t> tops_;
};

std::size_t index_of(std::vector<std::string>& names, const std::string& name) {
  const auto at = std::find(names.begin(), names.end(), name);
  const auto index = static_cast<std::size_t>(at - names.begin());
  if (at == names.end()) names.push_back(name);
  return index;
}

std::string areas(const Outcome& outcome, const ClusterShape& shape, double end_s,
                  std::vector<std::string>& applications) {
  std::vector<HeldSpan> spans = outcome.spans;
  std::stable_sort(spans.begin(), spans.end(),
                   [](const HeldSpan& a, const HeldSpan& b) { return a.job < b.job; });
  Stack stack(end_s);
  std::string text =
      fmt::format("<g class=\"areas\" transform=\"translate({} {}) scale(1 -{:.6g})\">\n", kLeft,
                  kTop + kHeight, static_cast<double>(kHeight) / std::max(1U, shape.gpus()));
  for (const HeldSpan& span : spans) {
    const SimulatedJob& job = outcome.jobs[span.job];
    const std::string path = stack.add(span);
    if (path.empty()) continue;
    text += fmt::format(
        "<path fill=\"{}\" d=\"{}\"><title>{}, {}: {}, {:.2f} to {:.2f} h</title></path>\n",
        colour(index_of(applications, job.application().name())), path,
        escaped(job.submission().name), escaped(job.application().name()),
        counted(span.gpus, "GPU"), span.from_s / 3600, span.to_s / 3600);
  }
  return text + "</g>\n";
}

bool is_shown(const std::pair<double, double>& point, bool logarithmic_x) {
  return std::isfinite(point.first) && std::isfinite(point.second) &&
         (!logarithmic_x || point.first > 0);
}

std::string line(const ChartLine& of, std::string_view stroke, const Axis& x, const Axis& y,
                 bool logarithmic_x) {
  std::string path, dots;
  for (const auto& point : of.points) {
    if (!is_shown(point, logarithmic_x)) continue;
    const double at_x = x_of(x, point.first), at_y = y_of(y, point.second);
    path += fmt::format("{}{:.1f} {:.1f}", path.empty() ? 'M' : 'L', at_x, at_y);
    dots += fmt::format(
        "<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"4\" fill=\"{}\">"
        "<title>{}: {:.6g}, {:.6g}</title></circle>\n",
        at_x, at_y, stroke, escaped(of.name), point.first, point.second);
  }
  if (path.empty()) return "";
  return fmt::format("<path class=\"line\" stroke=\"{}\" d=\"{}\"/>\n{}", stroke, path, dots);
}

std::string curves(const Chart& chart) {
  std::vector<double> xs, ys = {0};
  std::vector<std::string> names;
  for (const ChartLine& of : chart.lines) {
    names.push_back(of.name);
    for (const auto& point : of.points) {
      if (!is_shown(point, chart.logarithmic_x)) continue;
      xs.push_back(point.first);
      ys.push_back(point.second);
    }
  }
  if (xs.empty()) xs.push_back(1);
  const auto [left, right] = std::minmax_element(xs.begin(), xs.end());
  const auto [low, high] = std::minmax_element(ys.begin(), ys.end());
  const Axis x(*left, *right, chart.logarithmic_x);
  // Some air above the highest point.
  const Axis y(*low, *high > *low ? *high + (*high - *low) / 20 : *low + 1, false);
  std::string drawn = grid(x, y, chart.x_title, chart.y_title);
  for (std::size_t i = 0; i < chart.lines.size(); ++i)
    drawn += line(chart.lines[i], colour(i), x, y, chart.logarithmic_x);
  return figure(chart.title, names, drawn + frame());
}

}  // namespace

std::string gpu_picture(const Outcome& outcome, const ClusterShape& shape, std::string_view title) {
  const double end_s = outcome.end_s > 0 ? outcome.end_s : 1;
  const Axis hours(0, end_s / 3600, false);
  const Axis gpus(0, shape.gpus(), false);
  std::vector<std::string> applications;
  const std::string drawn = areas(outcome, shape, end_s, applications);
  return page(title,
              figure(title, applications, grid(hours, gpus, "time (h)", "GPUs") + drawn + frame()));
}

std::string curves_picture(std::string_view title, const std::vector<Chart>& charts) {
  std::string body;
  for (const Chart& chart : charts)
    body += fmt::format("<h2>{}</h2>\n{}", escaped(chart.title), curves(chart));
  return page(title, body);
}

}  // namespace bellows
