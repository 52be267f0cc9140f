// Histograms as an SVG: one panel a table, a bar for each power of two, the number of rows on a logarithmic axis.
#include <algorithm>
#include <cmath>

#include <fmt/core.h>

#include "tools/inspect/opened.h"
#include "tools/inspect/row_stats.h"
#include "tools/output_path.h"

namespace capstan {
namespace {

constexpr double kPanelWidth = 760, kPanelHeight = 260;
constexpr double kLeft = 80, kRight = 20, kTop = 40, kBottom = 60;

std::string Escaped(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '<')
      out += "&lt;";
    else if (c == '>')
      out += "&gt;";
    else if (c == '&')
      out += "&amp;";
    else if (c == '"')
      out += "&quot;";
    else
      out += c;
  }
  return out;
}

std::string Text(double x, double y, const std::string& anchor, const std::string& text, const std::string& more = "") {
  return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\"{}>{}</text>\n", x, y, anchor, more,
                     Escaped(text));
}

struct Panel {
  std::string title, axis;
  LogHistogram histogram;
};

constexpr double kPlotWidth = kPanelWidth - kLeft - kRight, kPlotHeight = kPanelHeight - kTop - kBottom;
constexpr double kMostPerBar = 60;
// The axis begins a little below 1, so that one row is a bar that can be seen.
constexpr double kBelowOne = 0.15;

// Where a number of rows lies above the axis; `decades` is its logarithm at the top.
double HeightOf(double rows, double decades) {
  return kPlotHeight * (std::log10(rows) + kBelowOne) / (decades + kBelowOne);
}

// Rows by decades: 1, 10, 100 …
std::string Grid(double decades, double base) {
  std::string svg;
  for (double rows = 1; std::log10(rows) < decades + 0.5; rows *= 10) {
    const double y = base - HeightOf(rows, decades);
    svg += fmt::format("<line x1=\"{}\" y1=\"{:.1f}\" x2=\"{}\" y2=\"{:.1f}\" stroke=\"#ddd\"/>\n", kLeft, y,
                       kLeft + kPlotWidth, y);
    svg += Text(kLeft - 6, y + 4, "end", fmt::format("{:.0f}", rows));
  }
  return svg;
}

std::string EdgeLabel(double edge) { return std::isinf(edge) ? "∞" : fmt::format("{:.3g}", edge); }

// What stands below the bars: the limits between them, and 0 below that of zeros.
std::string Labels(const std::vector<LogHistogram::Bin>& bins, double step, double base) {
  constexpr double kLabelWidth = 58;
  std::string svg;
  double next = 0;  // where the label before ends
  for (size_t i = 0; i < bins.size(); ++i) {
    const double x = kLeft + step * static_cast<double>(i);
    const bool zeros = bins[i].high == 0;
    const double middle = zeros ? x + step / 2 : x;
    if (middle >= next) {
      svg += Text(middle, base + 16, "middle", zeros ? "0" : EdgeLabel(bins[i].low));
      next = middle + (zeros ? step / 2 : kLabelWidth);
    }
    if (i + 1 == bins.size() && !zeros && x + step >= next)
      svg += Text(x + step, base + 16, "middle", EdgeLabel(bins[i].high));
  }
  return svg;
}

std::string PanelSvg(const Panel& panel, double y0) {
  const std::vector<LogHistogram::Bin> bins = panel.histogram.bins();
  const double base = y0 + kTop + kPlotHeight;
  std::string svg = Text(kLeft, y0 + 24, "start", panel.title, " font-weight=\"bold\"");
  uint64_t most = 1;
  for (const LogHistogram::Bin& bin : bins) most = std::max(most, bin.count);
  const double decades = std::max(1.0, std::ceil(std::log10(static_cast<double>(most))));
  svg += Grid(decades, base);
  const double step = std::min(kMostPerBar, kPlotWidth / std::max<double>(1, static_cast<double>(bins.size())));
  for (size_t i = 0; i < bins.size(); ++i) {
    if (bins[i].count == 0) continue;
    const double height = HeightOf(static_cast<double>(bins[i].count), decades);
    svg += fmt::format(
        "<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" fill=\"#4477aa\">"
        "<title>{} row{}</title></rect>\n",
        kLeft + step * static_cast<double>(i) + 1, base - height, std::max(1.0, step - 2), height, bins[i].count,
        bins[i].count == 1 ? "" : "s");
  }
  svg += Labels(bins, step, base);
  svg += fmt::format("<line x1=\"{}\" y1=\"{:.1f}\" x2=\"{}\" y2=\"{:.1f}\" stroke=\"black\"/>\n", kLeft, base,
                     kLeft + kPlotWidth, base);
  svg += Text(kLeft + kPlotWidth / 2, base + 38, "middle", panel.axis);
  const double middle = base - kPlotHeight / 2;
  svg += Text(18, middle, "middle", "rows", fmt::format(" transform=\"rotate(-90 18 {:.1f})\"", middle));
  return svg;
}

std::string SvgOf(const std::vector<Panel>& panels) {
  const double height = kPanelHeight * static_cast<double>(panels.size());
  std::string svg = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{1}\" viewBox=\"0 0 {0} {1}\" "
      "font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n",
      kPanelWidth, height);
  for (size_t i = 0; i < panels.size(); ++i) svg += PanelSvg(panels[i], kPanelHeight * static_cast<double>(i));
  return svg + "</svg>\n";
}

const char* AxisOf(RowMeasure measure) {
  switch (measure) {
    case RowMeasure::kNorm:
      return "norm of a row's weights";
    case RowMeasure::kCount:
      return "updates of a row (a bar: from its left limit to below the right one)";
    case RowMeasure::kAge:
      return "steps since a row's last update (a bar: from its left limit to below the right one)";
  }
  return "";
}

}  // namespace

int InspectPlot(const InspectOptions& options) {
  const absl::StatusOr<RowMeasure> what = ParseMeasure(options.what);
  if (!what.ok()) return InspectUsage("plot", "--what=" + std::string(what.status().message()));
  if (options.out.empty()) return InspectUsage("plot", "--out=FILE.svg is missing");
  if (!options.out.ends_with(".svg")) {
    return InspectUsage("plot",
                        fmt::format("--out={}: only .svg is written; any browser shows and prints it", options.out));
  }
  if (const absl::Status path = CheckOutputPath(options.out, {}); !path.ok()) return InspectFailure("plot", path);
  const auto reader = OpenForInspection(options.paths[0]);
  if (!reader.ok()) return InspectUnreadable("plot", reader.status());
  if (const absl::Status path = CheckOutsideCheckpoint(options.out, **reader); !path.ok())
    return InspectFailure("plot", path);
  const auto tables = ChooseTables(**reader, options.table);
  if (!tables.ok()) return InspectFailure("plot", tables.status());
  const uint64_t clock = UpdateClockOf(**reader);
  std::vector<Panel> panels;
  for (const TableSpec* table : *tables) {
    Panel panel;
    panel.axis = AxisOf(*what);
    const absl::Status read =
        (*reader)->ForEach(static_cast<TableId>(table->id()), 0, (*reader)->partitions(), [&](const StoredRow& row) {
          panel.histogram.Add(MeasureOf(*what, row, table->width(), clock));
          return absl::OkStatus();
        });
    if (!read.ok()) return InspectFailure("plot", WhileReading(**reader, read));
    panel.title = fmt::format("{}: {} row{}, step {}", table->name(), panel.histogram.total(),
                              panel.histogram.total() == 1 ? "" : "s", (*reader)->manifest().version());
    panels.push_back(std::move(panel));
  }
  const std::vector<std::string> above = MissingAbove(options.out);
  absl::Status written = MakeFoldersDurably(PosixFileSystem(), ParentFolder(options.out));
  if (written.ok()) written = WriteFileAtomically(PosixFileSystem(), options.out, SvgOf(panels));
  if (!written.ok()) {
    for (const std::string& folder : above) PosixFileSystem().Remove(folder).IgnoreError();
    return InspectFailure("plot", written);
  }
  return Say("plot", fmt::format("{} written\n", options.out));
}

}  // namespace capstan
