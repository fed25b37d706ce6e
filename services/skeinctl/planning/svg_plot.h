// Line charts as SVG, for the simulator's figures.
//
// A figure answers one question, which is its title. Its panels share one legend above the data; a
// series has the same colour, dash and marker in every panel. Points are marked in series with few
// points, so a series with one value is a point. Where curves coincide, the lower ones are drawn
// wider, so that all are visible.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace skein::services {

struct PlotSeries {
  std::string name;
  std::vector<std::pair<double, double>> points;  // (x, y), ascending x
};

// Scale of an axis. kFromZero is linear and includes 0. kLogIfWide is logarithmic, and labelled so,
// when the positive values span a factor of 10 or more; else linear, including 0 unless the values
// lie within a factor of 2, where 0 would compress them.
enum class Scale { kLinear, kFromZero, kLogIfWide };

struct Plot {
  std::string title;    // may be empty
  std::string x_label;  // with the unit
  std::string y_label;
  Scale x_scale = Scale::kLinear;
  Scale y_scale = Scale::kFromZero;
  std::optional<double> y_reference = {};  // a dashed line across, inside the y axis
  std::vector<PlotSeries> series;
};

struct Figure {
  std::string title;     // the question that the figure answers
  std::string subtitle;  // what was measured; may be empty
  std::vector<Plot> plots;
  int columns = 1;
};

// Omits points that are not finite; on a logarithmic axis also those <= 0.
std::string FigureSvg(const Figure& figure);

// A readable unit for times up to `largest_s`: s, ms or µs.
struct TimeUnit {
  const char* name;
  double per_second;
};
TimeUnit FittingTimeUnit(double largest_s);

}  // namespace skein::services
