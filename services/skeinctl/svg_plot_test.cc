#include "services/skeinctl/svg_plot.h"

#include <limits>

#include "gtest/gtest.h"

namespace skein::services {
namespace {

size_t Count(const std::string& text, const std::string& word) {
  size_t count = 0;
  for (size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) ++count;
  return count;
}

TEST(SvgPlot, DrawsEverySeriesInsideThePicture) {
  const Plot plot = {"a < b", "x", "y", false, {{"one", {{0, 1}, {1, 3}}}, {"two", {{0, 2}}}}};
  const std::string svg = PlotsSvg({plot, plot, plot}, 2);
  EXPECT_EQ(Count(svg, "<polyline"), 6u);
  EXPECT_EQ(Count(svg, "a &lt; b"), 3u);
  EXPECT_NE(svg.find("width=\"840\" height=\"600\""), std::string::npos);
  EXPECT_EQ(svg.find("nan"), std::string::npos);
}

TEST(SvgPlot, LeavesOutWhatCannotBeDrawn) {
  const double inf = std::numeric_limits<double>::infinity();
  const Plot odd = {"", "", "", true, {{"", {{0, 0}, {1, inf}, {2, -1}, {3, 10}, {4, 1000}}}}};
  const std::string svg = PlotsSvg({odd, Plot{}}, 2);
  for (const char* bad : {"nan", "inf"}) EXPECT_EQ(svg.find(bad), std::string::npos) << svg;
}

}  // namespace
}  // namespace skein::services
