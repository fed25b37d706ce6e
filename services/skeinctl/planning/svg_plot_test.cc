#include "services/skeinctl/planning/svg_plot.h"

#include <cmath>
#include <limits>

#include "gtest/gtest.h"
#include "services/skeinctl/planning/plot_axis.h"

namespace skein::services {
namespace {

size_t Count(const std::string& text, const std::string& word) {
  size_t count = 0;
  for (size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) ++count;
  return count;
}

Plot Named(const char* title, std::vector<PlotSeries> series) {
  return {.title = title, .x_label = "x", .y_label = "y", .series = std::move(series)};
}

TEST(SvgPlot, DrawsEverySeriesInsideThePicture) {
  const Plot plot = Named("a < b", {{"one", {{0, 1}, {1, 3}}}, {"two", {{0, 2}, {1, 0}}}});
  const std::string svg = FigureSvg({"why?", "", {plot, plot, plot}, 2});
  EXPECT_EQ(Count(svg, "<polyline"), 6u);
  EXPECT_EQ(Count(svg, "a &lt; b"), 3u);
  EXPECT_NE(svg.find("width=\"880\""), std::string::npos);
  EXPECT_EQ(svg.find("nan"), std::string::npos);
}

// A series with one value is visible.
TEST(SvgPlot, MarksSingleValues) {
  const std::string svg =
      FigureSvg({"", "", {Named("", {{"one", {{3, 0.5}}}, {"two", {{3, 2}}}})}});
  // One marker in the legend and one per point.
  EXPECT_EQ(Count(svg, "class=\"point\""), 4u) << svg;
  EXPECT_EQ(Count(svg, "<polyline"), 0u) << svg;
}

TEST(SvgPlot, HasOneLegendThatStandsAboveTheData) {
  const Plot plot = Named("", {{"tetris", {{0, 9}, {1, 9}}}, {"single", {{0, 1}, {1, 2}}}});
  const std::string svg = FigureSvg({"why?", "", {plot, plot}, 2});
  EXPECT_EQ(Count(svg, ">tetris</text>"), 1u);
  const auto y_of = [&](const std::string& text) {
    const size_t element = svg.rfind("<text", svg.find(text));
    return std::stod(svg.substr(svg.find(" y=\"", element) + 4));
  };
  const size_t line = svg.find("<polyline");
  const double data_top = std::stod(svg.substr(svg.find(',', line) + 1));
  EXPECT_LT(y_of(">tetris<"), data_top);
  EXPECT_LT(y_of(">single<"), data_top);
}

// Of equal curves, the lower one is wider, so both are visible. Crossing curves are not equal.
TEST(SvgPlot, ShowsEqualCurvesBoth) {
  const std::vector<std::pair<double, double>> curve = {{0, 1}, {1, 2}, {2, 5}};
  const std::string equal = FigureSvg({"", "", {Named("", {{"a", curve}, {"b", curve}})}});
  EXPECT_EQ(Count(equal, "stroke-width=\"3.8\""), 1u) << equal;
  // Two curves that share most points are both visible, too.
  const std::string parting =
      FigureSvg({"", "", {Named("", {{"a", curve}, {"b", {{0, 1}, {1, 2}, {2, 0}}}})}});
  EXPECT_EQ(Count(parting, "stroke-width=\"3.8\""), 1u) << parting;
  const std::string crossing = FigureSvg(
      {"", "", {Named("", {{"a", {{0, 0}, {1, 1}, {2, 2}}}, {"b", {{0, 2}, {1, 1}, {2, 0}}}})}});
  EXPECT_EQ(Count(crossing, "stroke-width=\"3.8\""), 0u) << crossing;
}

// A name has one colour in the legend and in every panel, whatever else a panel shows.
TEST(SvgPlot, ANameKeepsItsColour) {
  const PlotSeries one = {"one", {{0, 1}, {1, 3}}}, two = {"two", {{0, 2}, {1, 0}}};
  const std::string svg = FigureSvg({"", "", {Named("", {one, two}), Named("", {two})}, 2});
  const auto stroke_of_line = [&svg](size_t nth) {
    size_t at = 0;
    for (size_t i = 0; i <= nth; ++i) at = svg.find("<polyline", at + 1);
    at = svg.find("stroke=\"", at) + 8;
    return svg.substr(at, svg.find('"', at) - at);
  };
  EXPECT_NE(stroke_of_line(0), stroke_of_line(1));
  EXPECT_EQ(stroke_of_line(2), stroke_of_line(1));
  const size_t line = svg.rfind("<line", svg.find(">two</text>"));
  EXPECT_EQ(svg.substr(svg.find("stroke=\"", line) + 8, stroke_of_line(1).size()),
            stroke_of_line(1));
}

// The reference line is inside the panel, even if all values are far from it.
TEST(SvgPlot, TheReferenceIsInThePicture) {
  Plot plot = Named("", {{"a", {{0, 4}, {1, 5}}}});
  plot.y_scale = Scale::kLinear;
  plot.y_reference = 1;
  const std::string svg = FigureSvg({"", "", {plot}});
  const size_t line = svg.rfind("<line", svg.find("stroke-dasharray=\"3 3\""));
  const double y = std::stod(svg.substr(svg.find(" y1=\"", line) + 5));
  const double height = std::stod(svg.substr(svg.find(" height=\"") + 9));
  EXPECT_GT(y, 0);
  EXPECT_LT(y, height - 40) << "above the axis' labels";
}

TEST(SvgPlot, AnAxisBeginsAtZeroUnlessThatWouldPressItsValuesTogether) {
  Plot plot = Named("", {{"a", {{0, 2}, {1, 7}}}});
  plot.y_scale = Scale::kLogIfWide;
  EXPECT_EQ(Count(FigureSvg({"", "", {plot}}), "text-anchor=\"end\">0</text>"), 1u);
  plot.series[0].points = {{0, 5}, {1, 7}};
  EXPECT_EQ(Count(FigureSvg({"", "", {plot}}), "text-anchor=\"end\">0</text>"), 0u);
}

TEST(SvgPlot, SaysWhenAnAxisIsLogarithmic) {
  Plot wide = Named("", {{"a", {{0, 0.2}, {1, 40}}}});
  wide.y_scale = Scale::kLogIfWide;
  EXPECT_EQ(Count(FigureSvg({"", "", {wide}}), "y (log scale)"), 1u);
  Plot narrow = Named("", {{"a", {{0, 2}, {1, 4}}}});
  narrow.y_scale = Scale::kLogIfWide;
  EXPECT_EQ(Count(FigureSvg({"", "", {narrow}}), "log"), 0u);
}

TEST(SvgPlot, LeavesOutWhatCannotBeDrawn) {
  const double inf = std::numeric_limits<double>::infinity();
  Plot odd = Named("", {{"", {{0, 0}, {1, inf}, {2, -1}, {3, 10}, {4, 1000}}}});
  odd.y_scale = Scale::kLogIfWide;
  const std::string svg = FigureSvg({"", "", {odd, Plot{}}, 2});
  for (const char* bad : {"nan", "inf"}) EXPECT_EQ(svg.find(bad), std::string::npos) << svg;
  EXPECT_NE(svg.find("log scale"), std::string::npos);
  FigureSvg({});
}

std::vector<double> Ticks(double low, double high, bool log) {
  return PlotAxis(low, high, log, 0, 1).ticks();
}

void ExpectNear(const std::vector<double>& found, const std::vector<double>& wanted) {
  ASSERT_EQ(found.size(), wanted.size());
  for (size_t i = 0; i < wanted.size(); ++i) {
    EXPECT_NEAR(found[i], wanted[i], 1e-9 * std::abs(wanted[i]) + 1e-12);
  }
}

TEST(PlotAxis, TicksAreStepsOf1Or2Or5) {
  ExpectNear(Ticks(0, 1, false), {0, 0.2, 0.4, 0.6, 0.8, 1});
  ExpectNear(Ticks(0, 7.3, false), {0, 2, 4, 6, 8});
  ExpectNear(Ticks(0.98, 1.11, false), {0.95, 1, 1.05, 1.1, 1.15});
  ExpectNear(Ticks(3, 3, false), {1, 2, 3, 4, 5});
}

TEST(PlotAxis, LogarithmicTicksAreDecades) {
  ExpectNear(Ticks(0.002, 90, true), {0.01, 0.1, 1, 10, 100});
  ExpectNear(Ticks(0.3, 12, true), {0.2, 0.5, 1, 2, 5, 10, 20});
  ExpectNear(Ticks(4, 4, true), {2, 5, 10});
}

TEST(PlotAxis, PutsItsEndsAtTheEnds) {
  for (const bool log : {false, true}) {
    const PlotAxis axis(0.5, 80, log, 100, 20);
    EXPECT_NEAR(axis.At(axis.low()), 100, 1e-9);
    EXPECT_NEAR(axis.At(axis.high()), 20, 1e-9);
    EXPECT_LE(axis.low(), 0.5);
    EXPECT_GE(axis.high(), 80);
    for (const double tick : axis.MinorTicks()) {
      EXPECT_GT(tick, axis.low());
      EXPECT_LT(tick, axis.high());
    }
  }
}

TEST(PlotAxis, LabelsAreShort) {
  EXPECT_EQ(TickLabel(0.30000000000000004), "0.3");
  EXPECT_EQ(TickLabel(1200), "1200");
  EXPECT_EQ(TickLabel(0), "0");
  EXPECT_EQ(TickLabel(0.05), "0.05");
  EXPECT_EQ(TickLabel(2.5e7), "2.5e+07");
}

TEST(TimeUnit, FitsTheValues) {
  EXPECT_STREQ(FittingTimeUnit(12).name, "s");
  EXPECT_STREQ(FittingTimeUnit(0.0065).name, "ms");
  EXPECT_STREQ(FittingTimeUnit(3e-5).name, "µs");
  EXPECT_STREQ(FittingTimeUnit(0).name, "s");
}

}  // namespace
}  // namespace skein::services
