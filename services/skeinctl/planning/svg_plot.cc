#include "services/skeinctl/planning/svg_plot.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "services/skeinctl/planning/plot_axis.h"

namespace skein::services {
namespace {

constexpr double kWidth = 440;  // width of one of several side-by-side panels, with margins
constexpr double kAloneWidth = 620;
constexpr double kHeight = 300;
constexpr double kLeft = 72;
constexpr double kRight = 18;
constexpr double kTop = 26;
constexpr double kBottom = 46;
constexpr double kLineHeight = 18;
constexpr double kLegendEntry =
    110;  // width of an entry in the legend's grid; wider for long names
constexpr size_t kMarkedPoints = 40;  // longer series are drawn without markers
constexpr double kStroke = 1.8;
constexpr double kRim = 2;         // extra width of a curve for each equal one above it
constexpr double kCoincide = 1.5;  // points within this many pixels look the same

struct Style {
  const char* colour;
  const char* dash;  // "": solid
  char marker;       // o circle, s square, d diamond, t triangle
};
constexpr std::array<Style, 8> kStyles = {{{"#1b9e77", "", 'o'},
                                           {"#d95f02", "7 3", 's'},
                                           {"#7570b3", "2 3", 'd'},
                                           {"#e7298a", "8 3 2 3", 't'},
                                           {"#1f78b4", "", 's'},
                                           {"#b58900", "7 3", 'o'},
                                           {"#a6761d", "2 3", 't'},
                                           {"#555555", "8 3 2 3", 'd'}}};

using Point = std::pair<double, double>;

std::string Escaped(const std::string& text) {
  return absl::StrReplaceAll(text,
                             {{"&", "&amp;"}, {"<", "&lt;"}, {">", "&gt;"}, {"\"", "&quot;"}});
}

std::string Text(double x, double y, const char* anchor, const std::string& text,
                 const std::string& extra = "") {
  return absl::StrFormat("<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\"%s>%s</text>\n", x, y,
                         anchor, extra, Escaped(text));
}

std::string Line(double x1, double y1, double x2, double y2, const char* colour,
                 const std::string& extra = "") {
  return absl::StrFormat(
      "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" stroke=\"%s\"%s/>\n", x1, y1, x2, y2,
      colour, extra);
}

std::string Marker(const Style& style, double x, double y, double r) {
  switch (style.marker) {
    case 's':
      return absl::StrFormat(
          "<rect class=\"point\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" "
          "fill=\"%s\"/>\n",
          x - r, y - r, 2 * r, 2 * r, style.colour);
    case 'd':
      return absl::StrFormat(
          "<path class=\"point\" d=\"M%.1f %.1fl%.1f %.1fl%.1f %.1fl%.1f %.1fz\" fill=\"%s\"/>\n",
          x, y - 1.3 * r, 1.3 * r, 1.3 * r, -1.3 * r, 1.3 * r, -1.3 * r, -1.3 * r, style.colour);
    case 't':
      return absl::StrFormat(
          "<path class=\"point\" d=\"M%.1f %.1fl%.1f %.1fh%.1fz\" fill=\"%s\"/>\n", x, y - 1.3 * r,
          1.2 * r, 2.2 * r, -2.4 * r, style.colour);
    default:
      return absl::StrFormat(
          "<circle class=\"point\" cx=\"%.1f\" cy=\"%.1f\" r=\"%.1f\" fill=\"%s\"/>\n", x, y, r,
          style.colour);
  }
}

std::string DashOf(const Style& style) {
  return *style.dash == 0 ? "" : absl::StrCat(" stroke-dasharray=\"", style.dash, "\"");
}

// The finite values of one coordinate of all points; positive ones where required.
std::vector<double> Values(const Plot& plot, bool of_y) {
  std::vector<double> values;
  for (const PlotSeries& series : plot.series) {
    for (const auto& [x, y] : series.points) {
      if (std::isfinite(x) && std::isfinite(y)) values.push_back(of_y ? y : x);
    }
  }
  if (of_y && plot.y_reference.has_value()) values.push_back(*plot.y_reference);
  return values;
}

PlotAxis AxisFor(const Plot& plot, bool of_y, double from_pixel, double to_pixel) {
  const Scale scale = of_y ? plot.y_scale : plot.x_scale;
  std::vector<double> values = Values(plot, of_y);
  bool log = false;
  if (scale == Scale::kLogIfWide) {
    std::erase_if(values, [](double v) { return v <= 0; });
    const auto [low, high] = std::minmax_element(values.begin(), values.end());
    log = !values.empty() && *high >= 10 * *low;
  }
  if (values.empty()) return PlotAxis(0, 1, false, from_pixel, to_pixel);
  const auto [low, high] = std::minmax_element(values.begin(), values.end());
  const bool narrow = *low > *high / 2;
  if (scale == Scale::kFromZero || (scale == Scale::kLogIfWide && !log && !narrow)) {
    return PlotAxis(std::min(0.0, *low), std::max(0.0, *high), false, from_pixel, to_pixel);
  }
  return PlotAxis(*low, *high, log, from_pixel, to_pixel);
}

std::string Named(const std::string& label, const PlotAxis& axis) {
  return axis.log() ? absl::StrCat(label, " (log scale)") : label;
}

std::string AxesSvg(const Plot& plot, const PlotAxis& x, const PlotAxis& y, double left, double top,
                    double width) {
  const double right = left + width - kRight;
  const double bottom = top + kHeight - kBottom;
  const double from = left + kLeft;
  const double to = top + kTop;
  std::string svg;
  for (const double tick : y.MinorTicks()) {
    absl::StrAppend(&svg, Line(from, y.At(tick), right, y.At(tick), "#f2f2f2"));
  }
  for (const double tick : x.MinorTicks()) {
    absl::StrAppend(&svg, Line(x.At(tick), bottom, x.At(tick), to, "#f2f2f2"));
  }
  for (const double tick : y.ticks()) {
    absl::StrAppend(&svg, Line(from, y.At(tick), right, y.At(tick), "#dddddd"),
                    Text(from - 6, y.At(tick) + 4, "end", TickLabel(tick)));
  }
  for (const double tick : x.ticks()) {
    absl::StrAppend(&svg, Line(x.At(tick), bottom, x.At(tick), bottom + 4, "#444444"),
                    Text(x.At(tick), bottom + 16, "middle", TickLabel(tick)));
  }
  const double middle = to + (bottom - to) / 2;
  absl::StrAppend(&svg, Line(from, bottom, right, bottom, "#444444"),
                  Line(from, bottom, from, to, "#444444"),
                  Text((from + right) / 2, top + kHeight - 10, "middle", Named(plot.x_label, x)),
                  Text(left + 16, middle, "middle", Named(plot.y_label, y),
                       absl::StrFormat(" transform=\"rotate(-90 %.1f %.1f)\"", left + 16, middle)));
  if (!plot.title.empty()) {
    absl::StrAppend(
        &svg, Text((from + right) / 2, top + 16, "middle", plot.title, " font-weight=\"bold\""));
  }
  if (plot.y_reference.has_value()) {
    const double at = y.At(*plot.y_reference);
    absl::StrAppend(&svg, Line(from, at, right, at, "#444444", " stroke-dasharray=\"3 3\""));
  }
  return svg;
}

// The points in pixels, without those that cannot be drawn.
std::vector<Point> Pixels(const PlotSeries& series, const PlotAxis& x, const PlotAxis& y) {
  std::vector<Point> pixels;
  for (const auto& [px, py] : series.points) {
    const bool positive = (!x.log() || px > 0) && (!y.log() || py > 0);
    if (std::isfinite(px) && std::isfinite(py) && positive) {
      pixels.emplace_back(x.At(px), y.At(py));
    }
  }
  return pixels;
}

bool Coincide(const std::vector<Point>& a, const std::vector<Point>& b) {
  const size_t count = std::min(a.size(), b.size());
  size_t same = 0;
  for (size_t i = 0; i < count; ++i) {
    same += std::abs(a[i].first - b[i].first) < kCoincide &&
                    std::abs(a[i].second - b[i].second) < kCoincide
                ? 1
                : 0;
  }
  // Crossing curves share a point; equal curves share most points.
  return count > 0 && 2 * same >= count;
}

std::string SeriesSvg(const Style& style, const std::vector<Point>& pixels, size_t beneath) {
  if (pixels.empty()) return "";
  const double extra = static_cast<double>(beneath);
  std::string points;
  for (const auto& [x, y] : pixels) absl::StrAppendFormat(&points, "%.1f,%.1f ", x, y);
  points.pop_back();
  std::string svg;
  if (pixels.size() > 1) {
    // A wide curve below others stays visible beside them; dashes would flicker.
    absl::StrAppendFormat(
        &svg, "<polyline points=\"%s\" fill=\"none\" stroke=\"%s\" stroke-width=\"%.1f\"%s/>\n",
        points, style.colour, kStroke + kRim * extra, beneath > 0 ? "" : DashOf(style));
  }
  if (pixels.size() > kMarkedPoints) return svg;
  for (const auto& [x, y] : pixels) {
    absl::StrAppend(&svg, Marker(style, x, y, 3 + 0.7 * kRim * extra));
  }
  return svg;
}

std::string PanelSvg(const Plot& plot, const std::vector<std::string>& names, double left,
                     double top, double width) {
  const PlotAxis x = AxisFor(plot, false, left + kLeft, left + width - kRight);
  const PlotAxis y = AxisFor(plot, true, top + kHeight - kBottom, top + kTop);
  std::string svg = AxesSvg(plot, x, y, left, top, width);
  std::vector<std::vector<Point>> pixels;
  for (const PlotSeries& series : plot.series) pixels.push_back(Pixels(series, x, y));
  for (size_t s = 0; s < pixels.size(); ++s) {
    size_t beneath = 0;
    for (size_t later = s + 1; later < pixels.size(); ++later) {
      beneath += Coincide(pixels[s], pixels[later]) ? 1 : 0;
    }
    const auto name = std::find(names.begin(), names.end(), plot.series[s].name);
    const Style& style = kStyles[static_cast<size_t>(name - names.begin()) % kStyles.size()];
    absl::StrAppend(&svg, SeriesSvg(style, pixels[s], beneath));
  }
  return svg;
}

// In order of first appearance.
std::vector<std::string> SeriesNames(const std::vector<Plot>& plots) {
  std::vector<std::string> names;
  for (const Plot& plot : plots) {
    for (const PlotSeries& series : plot.series) {
      if (std::find(names.begin(), names.end(), series.name) == names.end()) {
        names.push_back(series.name);
      }
    }
  }
  return names;
}

struct LegendGrid {
  double entry = kLegendEntry;
  size_t columns = 1;
  size_t rows = 0;
};

LegendGrid GridFor(const std::vector<std::string>& names, double width) {
  LegendGrid grid;
  for (const std::string& name : names) {
    grid.entry = std::max(grid.entry, 50 + 6.5 * static_cast<double>(name.size()));
  }
  grid.columns = std::max<size_t>(1, static_cast<size_t>((width - 2 * kRight) / grid.entry));
  grid.rows = (names.size() + grid.columns - 1) / grid.columns;
  return grid;
}

std::string LegendSvg(const std::vector<std::string>& names, const LegendGrid& grid, double top) {
  std::string svg;
  for (size_t i = 0; i < names.size(); ++i) {
    const Style& style = kStyles[i % kStyles.size()];
    const double x = kRight + grid.entry * static_cast<double>(i % grid.columns);
    const double y = top + kLineHeight * static_cast<double>(i / grid.columns);
    absl::StrAppend(&svg,
                    Line(x, y, x + 30, y, style.colour,
                         absl::StrFormat(" stroke-width=\"%.1f\"%s", kStroke, DashOf(style))),
                    Marker(style, x + 15, y, 3), Text(x + 36, y + 4, "start", names[i]));
  }
  return svg;
}

}  // namespace

std::string FigureSvg(const Figure& figure) {
  const int count = static_cast<int>(figure.plots.size());
  const int columns = std::max(1, std::min(figure.columns, count));
  const int rows = (count + columns - 1) / columns;
  const double panel = columns == 1 ? kAloneWidth : kWidth;
  const double width = panel * columns;
  const std::vector<std::string> names = SeriesNames(figure.plots);
  const LegendGrid grid = GridFor(names, width);
  double top = 26;
  std::string head = Text(kRight, top, "start", figure.title, " font-size=\"15\"");
  if (!figure.subtitle.empty()) {
    head += Text(kRight, top += kLineHeight, "start", figure.subtitle, " fill=\"#444444\"");
  }
  head += LegendSvg(names, grid, top + kLineHeight);
  top += kLineHeight * static_cast<double>(grid.rows) + 16;
  std::string panels;
  for (int i = 0; i < count; ++i) {
    panels += PanelSvg(figure.plots[static_cast<size_t>(i)], names, panel * (i % columns),
                       top + kHeight * (i / columns), panel);
  }
  const double height = top + kHeight * rows;
  return absl::StrFormat(
             "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%.0f\" height=\"%.0f\" "
             "viewBox=\"0 0 %.0f %.0f\" font-family=\"sans-serif\" font-size=\"12\">\n"
             "<title>%s</title>\n<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n",
             width, height, width, height, Escaped(figure.title)) +
         head + panels + "</svg>\n";
}

TimeUnit FittingTimeUnit(double largest_s) {
  if (largest_s >= 1 || !(largest_s > 0)) return {"s", 1};
  if (largest_s >= 1e-3) return {"ms", 1e3};
  return {"µs", 1e6};
}

}  // namespace skein::services
