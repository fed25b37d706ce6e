// Line charts as SVG, enough for the simulator's figures.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace skein::services {

struct PlotSeries {
  std::string name;
  std::vector<std::pair<double, double>> points;  // (x, y), ascending x
};

struct Plot {
  std::string title;
  std::string x_label;
  std::string y_label;
  bool log_y = false;  // points with y <= 0 are left out
  std::vector<PlotSeries> series;
};

// The plots side by side, `columns` in a row. Points that are not finite are left out.
std::string PlotsSvg(const std::vector<Plot>& plots, int columns);

}  // namespace skein::services
