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
    if (c == '<') out += "&lt;";
    else if (c == '>') out += "&gt;";
    else if (c == '&') out += "&amp;";
    else if (c == '"') out += "&quot;";
    else out += c;
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

// Rows by decades: 1, 10, 100 …
std::string Grid(double top_log, double y0) {
  std::string svg;
  const double height = kPanelHeight - kTop - kBottom;
  for (int decade = 0; decade <= static_cast<int>(std::ceil(top_log)); ++decade) {
    const double y = y0 + kTop + height * (1 - decade / std::ceil(top_log));
    svg += fmt::format("<line x1=\"{}\" y1=\"{:.1f}\" x2=\"{}\" y2=\"{:.1f}\" stroke=\"#ddd\"/>\n", kLeft, y,
                       kPanelWidth - kRight, y);
    svg += Text(kLeft - 6, y + 4, "end", fmt::format("{:.0f}", std::pow(10.0, decade)));
  }
  return svg;
}

std::string PanelSvg(const Panel& panel, double y0) {
  const std::vector<LogHistogram::Bin> bins = panel.histogram.bins();
  std::string svg = Text(kLeft, y0 + 24, "start", panel.title, " font-weight=\"bold\"");
  uint64_t most = 1;
  for (const LogHistogram::Bin& bin : bins) most = std::max(most, bin.count);
  const double top_log = std::max(1.0, std::log10(static_cast<double>(most)));
  svg += Grid(top_log, y0);
  const double height = kPanelHeight - kTop - kBottom;
  const double step = (kPanelWidth - kLeft - kRight) / std::max<double>(1, static_cast<double>(bins.size()));
  const size_t label_every = bins.size() / 10 + 1;
  for (size_t i = 0; i < bins.size(); ++i) {
    const double x = kLeft + step * static_cast<double>(i);
    if (bins[i].count > 0) {
      // One row is a visible bar too: the axis begins a little below 1.
      const double part = (std::log10(static_cast<double>(bins[i].count)) + 0.05) / (std::ceil(top_log) + 0.05);
      svg += fmt::format("<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" fill=\"#4477aa\">"
                         "<title>{} rows</title></rect>\n",
                         x + 1, y0 + kTop + height * (1 - part), std::max(1.0, step - 2), height * part, bins[i].count);
    }
    if (i % label_every == 0) {
      const std::string label = bins[i].high == 0 ? "0" : fmt::format("{:.3g}", bins[i].low);
      svg += Text(x + step / 2, y0 + kTop + height + 16, "middle", label);
    }
  }
  svg += fmt::format("<line x1=\"{}\" y1=\"{:.1f}\" x2=\"{}\" y2=\"{:.1f}\" stroke=\"black\"/>\n", kLeft,
                     y0 + kTop + height, kPanelWidth - kRight, y0 + kTop + height);
  svg += Text(kLeft + (kPanelWidth - kLeft - kRight) / 2, y0 + kTop + height + 38, "middle", panel.axis);
  const double middle = y0 + kTop + height / 2;
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
    case RowMeasure::kNorm: return "norm of a row's weights (each bar: up to twice its label)";
    case RowMeasure::kCount: return "updates of a row (each bar: up to twice its label)";
    case RowMeasure::kAge: return "steps since a row's last update (each bar: up to twice its label)";
  }
  return "";
}

}  // namespace

int InspectPlot(const InspectOptions& options) {
  const absl::StatusOr<RowMeasure> what = ParseMeasure(options.what);
  if (!what.ok()) return InspectUsage("plot", "--what=" + std::string(what.status().message()));
  if (options.out.empty()) return InspectUsage("plot", "--out=FILE.svg is missing");
  if (!options.out.ends_with(".svg")) {
    return InspectUsage("plot", fmt::format("--out={}: only .svg is written; any browser shows and prints it", options.out));
  }
  if (const absl::Status path = CheckOutputPath(options.out, {}); !path.ok()) return InspectFailure("plot", path);
  const auto reader = OpenForInspection(options.paths[0]);
  if (!reader.ok()) return InspectUnreadable("plot", reader.status());
  if (const absl::Status path = CheckOutsideCheckpoint(options.out, **reader); !path.ok()) return InspectFailure("plot", path);
  const auto tables = ChooseTables(**reader, options.table);
  if (!tables.ok()) return InspectFailure("plot", tables.status());
  const uint64_t clock = UpdateClockOf(**reader);
  std::vector<Panel> panels;
  for (const TableSpec* table : *tables) {
    Panel panel;
    panel.axis = AxisOf(*what);
    const absl::Status read = (*reader)->ForEach(static_cast<TableId>(table->id()), 0, (*reader)->partitions(),
                                                 [&](const StoredRow& row) {
                                                   panel.histogram.Add(MeasureOf(*what, row, table->width(), clock));
                                                   return absl::OkStatus();
                                                 });
    if (!read.ok()) return InspectFailure("plot", read);
    panel.title = fmt::format("{}: {} rows, step {}", table->name(), panel.histogram.total(),
                              (*reader)->manifest().version());
    panels.push_back(std::move(panel));
  }
  const absl::Status written = WriteFileAtomically(PosixFileSystem(), options.out, SvgOf(panels));
  if (!written.ok()) return InspectFailure("plot", written);
  return Say("plot", fmt::format("{} written\n", options.out));
}

}  // namespace capstan
