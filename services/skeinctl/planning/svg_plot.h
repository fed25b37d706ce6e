// Line charts as SVG, enough for the simulator's figures.
//
// A figure answers one question, which is its title. Its panels share one legend, which stands
// above them and never on the data; a series has the same colour, dash and marker in every panel.
// Points are marked where a series has few of them, so a series of one value is a point. Where
// curves coincide, those beneath are drawn wider, so that all of them are seen.
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

// Of an axis. kFromZero is linear and includes 0. kLogIfWide is logarithmic when the positive
// values span a factor of 10 or more, and says so; else linear, and includes 0 unless the values
// lie within a factor of 2, where 0 would only press them together.
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
  std::string title;     // the question
  std::string subtitle;  // what was asked of what; may be empty
  std::vector<Plot> plots;
  int columns = 1;
};

// Points that are not finite are left out; on a logarithmic axis, those <= 0 too.
std::string FigureSvg(const Figure& figure);

// The unit in which times up to `largest_s` read well: s, ms or µs.
struct TimeUnit {
  const char* name;
  double per_second;
};
TimeUnit FittingTimeUnit(double largest_s);

}  // namespace skein::services
