#include "services/skeinctl/svg_plot.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"

namespace skein::services {
namespace {

constexpr double kWidth = 420;  // of one plot, with its margins
constexpr double kHeight = 300;
constexpr double kLeft = 62;
constexpr double kRight = 14;
constexpr double kTop = 30;
constexpr double kBottom = 44;
constexpr const char* kColours[] = {"#1b9e77", "#d95f02", "#7570b3", "#e7298a",
                                    "#66a61e", "#e6ab02", "#a6761d", "#666666"};

std::string Escaped(const std::string& text) {
  return absl::StrReplaceAll(text, {{"&", "&amp;"}, {"<", "&lt;"}, {">", "&gt;"}});
}

std::string Text(double x, double y, const char* anchor, const std::string& text,
                 const char* extra = "") {
  return absl::StrFormat("<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\"%s>%s</text>\n", x, y,
                         anchor, extra, Escaped(text));
}

std::string Line(double x1, double y1, double x2, double y2, const char* colour) {
  return absl::StrFormat("<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" stroke=\"%s\"/>\n",
                         x1, y1, x2, y2, colour);
}

// One axis: values to pixels, and round values to mark.
struct Axis {
  double low = 0;
  double high = 1;
  bool log = false;
  double from_pixel = 0;
  double to_pixel = 1;

  double At(double value) const {
    const double v = log ? std::log10(value) : value;
    return from_pixel + (v - low) / (high - low) * (to_pixel - from_pixel);
  }

  std::vector<double> Ticks() const {
    std::vector<double> ticks;
    if (log) {
      for (double e = std::ceil(low - 1e-9); e <= high + 1e-9; ++e)
        ticks.push_back(std::pow(10, e));
      if (ticks.size() >= 2) return ticks;
      return {std::pow(10, low), std::pow(10, (low + high) / 2), std::pow(10, high)};
    }
    const double rough = (high - low) / 5;
    const double power = std::pow(10, std::floor(std::log10(rough)));
    double step = power * 10;
    for (const double multiple : {1.0, 2.0, 5.0}) {
      if (rough <= power * multiple) {
        step = power * multiple;
        break;
      }
    }
    for (double t = std::ceil(low / step) * step; t <= high + step * 1e-6; t += step) {
      ticks.push_back(std::abs(t) < step * 1e-6 ? 0 : t);
    }
    return ticks;
  }
};

bool Drawable(const Plot& plot, const std::pair<double, double>& point) {
  return std::isfinite(point.first) && std::isfinite(point.second) &&
         (!plot.log_y || point.second > 0);
}

void FitAxes(const Plot& plot, Axis* x, Axis* y) {
  bool first = true;
  y->log = plot.log_y;
  for (const PlotSeries& series : plot.series) {
    for (const auto& point : series.points) {
      if (!Drawable(plot, point)) continue;
      const double value = y->log ? std::log10(point.second) : point.second;
      x->low = first ? point.first : std::min(x->low, point.first);
      x->high = first ? point.first : std::max(x->high, point.first);
      y->low = first ? value : std::min(y->low, value);
      y->high = first ? value : std::max(y->high, value);
      first = false;
    }
  }
  if (!y->log) y->low = std::min(0.0, y->low);
  if (x->high - x->low < 1e-12) x->high = x->low + 1;
  if (y->high - y->low < 1e-12) y->high = y->low + 1;
}

std::string Panel(const Plot& plot, double left, double top) {
  Axis x{0, 1, false, left + kLeft, left + kWidth - kRight};
  Axis y{0, 1, false, top + kHeight - kBottom, top + kTop};
  FitAxes(plot, &x, &y);
  std::string svg = Text((x.from_pixel + x.to_pixel) / 2, top + 18, "middle", plot.title,
                         " font-weight=\"bold\"");
  for (const double tick : y.Ticks()) {
    const double at = y.At(tick);
    absl::StrAppend(&svg, Line(x.from_pixel, at, x.to_pixel, at, "#dddddd"),
                    Text(x.from_pixel - 5, at + 4, "end", absl::StrFormat("%.4g", tick)));
  }
  for (const double tick : x.Ticks()) {
    const double at = x.At(tick);
    absl::StrAppend(&svg, Line(at, y.from_pixel, at, y.from_pixel + 4, "#444444"),
                    Text(at, y.from_pixel + 16, "middle", absl::StrFormat("%.4g", tick)));
  }
  absl::StrAppend(
      &svg, Line(x.from_pixel, y.from_pixel, x.to_pixel, y.from_pixel, "#444444"),
      Line(x.from_pixel, y.from_pixel, x.from_pixel, y.to_pixel, "#444444"),
      Text((x.from_pixel + x.to_pixel) / 2, top + kHeight - 10, "middle", plot.x_label),
      Text(left + 14, top + kHeight / 2, "middle", plot.y_label,
           absl::StrFormat(" transform=\"rotate(-90 %.1f %.1f)\"", left + 14, top + kHeight / 2)
               .c_str()));
  for (size_t s = 0; s < plot.series.size(); ++s) {
    const char* colour = kColours[s % std::size(kColours)];
    std::string points;
    for (const auto& point : plot.series[s].points) {
      if (!Drawable(plot, point)) continue;
      absl::StrAppendFormat(&points, "%.1f,%.1f ", x.At(point.first), y.At(point.second));
    }
    absl::StrAppendFormat(
        &svg, "<polyline points=\"%s\" fill=\"none\" stroke=\"%s\" stroke-width=\"1.8\"/>\n",
        points, colour);
    const double row = y.to_pixel + 10 + 13 * static_cast<double>(s);
    absl::StrAppend(&svg, Line(x.from_pixel + 6, row - 4, x.from_pixel + 22, row - 4, colour),
                    Text(x.from_pixel + 26, row, "start", plot.series[s].name));
  }
  return svg;
}

}  // namespace

std::string PlotsSvg(const std::vector<Plot>& plots, int columns) {
  const int count = static_cast<int>(plots.size());
  const int rows = (count + columns - 1) / columns;
  std::string svg = absl::StrFormat(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%.0f\" height=\"%.0f\" "
      "font-family=\"sans-serif\" font-size=\"11\">\n"
      "<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n",
      kWidth * std::min(columns, count), kHeight * rows);
  for (int i = 0; i < count; ++i) {
    absl::StrAppend(&svg, Panel(plots[static_cast<size_t>(i)], kWidth * (i % columns),
                                kHeight * (i / columns)));
  }
  return svg + "</svg>\n";
}

}  // namespace skein::services
