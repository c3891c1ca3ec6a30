#include "../../studies/roofline/published_figures.hpp"
#include "../test.hpp"

namespace published = roofline::published;
using doctest::Approx;

namespace {

/// The cells of a table of tests/data, row by row, without blanks around them.
std::vector<std::vector<std::string>> cells_of(const std::string& table) {
    std::ifstream lines(TENSAFE_TEST_DATA "/published_tables.txt");
    std::vector<std::vector<std::string>> rows;
    bool here = false;
    for (std::string line; std::getline(lines, line);) {
        here = line.starts_with('#') ? line.starts_with("# " + table + ":") : here;
        if (!here || !line.starts_with('|')) {
            continue;
        }
        rows.emplace_back();
        std::istringstream cells(line.substr(1));
        for (std::string cell; std::getline(cells, cell, '|');) {
            const std::size_t start = cell.find_first_not_of(' ');
            rows.back().push_back(
                start == cell.npos ? "" : cell.substr(start, cell.find_last_not_of(' ') - start + 1));
        }
    }
    return rows;
}

void check_number(const published::printed_number& number, const std::string& text) {
    INFO(text);
    std::string digits = text;
    digits.erase(std::remove(digits.begin(), digits.end(), ','), digits.end());
    CHECK(number.present == !digits.empty());
    if (!digits.empty()) {
        CHECK(number.value == std::stod(digits));
        const std::size_t point = digits.find('.');
        CHECK(number.decimals == (point == digits.npos ? 0 : static_cast<int>(digits.size() - point - 1)));
    }
}

const published::figure& figure_of(published::table in, std::string_view row, std::string_view column) {
    const auto found = std::find_if(
        published::figures.begin(), published::figures.end(),
        [&](const published::figure& f) { return f.in == in && f.row == row && f.column == column; });
    REQUIRE(found != published::figures.end());
    return *found;
}

}  // namespace

TEST_CASE("the decode table is the printed one") {
    const auto rows = cells_of("decode");
    REQUIRE(rows.size() == published::decode_table.size());
    for (std::size_t i = 0; i < rows.size(); ++i) {
        const published::decode_row& row = published::decode_table[i];
        CHECK(row.device.name == rows[i][0]);
        CHECK(row.device.terabytes_per_second == std::stod(rows[i][1]));
        check_number(row.bf16_milliseconds, rows[i][2]);
        check_number(row.q4_milliseconds, rows[i][3]);
        check_number(row.bf16_rate, rows[i][4]);
        check_number(row.q4_rate, rows[i][5]);
        check_number(row.practical_bf16_rate, rows[i][6]);
        check_number(row.practical_q4_rate, rows[i][7]);
        // No formula is given; all of them are about the same part of the bound.
        CHECK(row.practical_bf16_rate.value / row.bf16_rate.value == Approx(0.633).epsilon(0.025));
        CHECK(row.practical_q4_rate.value / row.q4_rate.value == Approx(0.602).epsilon(0.02));
    }
}

TEST_CASE("the rate table is the printed one, and its figures follow from its cells") {
    using published::table;
    const auto rows = cells_of("rate");
    REQUIRE(rows.size() == published::rate_table.size());
    const std::vector<std::string_view> columns{"improved", "chained", "rank 16", "all software"};
    std::size_t count = 0;
    for (std::size_t i = 0; i < rows.size(); ++i) {
        const published::rate_row& row = published::rate_table[i];
        CHECK(row.device == rows[i][0]);
        CHECK(row.device == published::decode_table[i].device.name);
        check_number(row.model_milliseconds, rows[i][1]);
        const std::vector<published::rate_entry> entries{row.improved, row.chained, row.rank16,
                                                         row.all_software};
        for (std::size_t c = 0; c < entries.size(); ++c) {
            const std::string& encrypted = rows[i][2 + 2 * c];
            const std::string& rate = rows[i][3 + 2 * c];
            check_number(entries[c].encrypted_milliseconds, encrypted);
            check_number(entries[c].rate, rate);
            if (!rate.empty()) {
                const published::figure& one = figure_of(table::rates, rows[i][0], columns[c]);
                check_number(one.printed, rate);
                CHECK(one.formula == Approx(1000 / (std::stod(rows[i][1]) + std::stod(encrypted))));
                CHECK(one.note == (c == 3 ? 10 : 0));
                ++count;
            }
        }
    }
    CHECK(count == static_cast<std::size_t>(
                       std::count_if(published::figures.begin(), published::figures.end(),
                                     [](const published::figure& f) { return f.in == table::rates; })));
}

TEST_CASE("every printed figure agrees with its formula to its last digit or carries a note, never both") {
    for (const published::figure& one : published::figures) {
        INFO(std::string(one.row), " ", std::string(one.column), ": ", one.printed.value, ", formula ",
             one.formula, ", note ", one.note);
        // Worked out here in another way: does the formula round to the printed digits?
        const double power = std::pow(10.0, one.printed.decimals);
        const double distance = std::fabs(one.formula * power - std::round(one.printed.value * power));
        CHECK((distance <= one.units + 2e-3) == (one.note == 0));
        CHECK(one.agrees() == (one.note == 0));
        CHECK(one.printed.present);
        // A looser rounding is for the total alone, which leaves one phase out.
        CHECK(one.units == (one.row == "T_HE of an H100, sum of phases, ms" ? 1.0 : 0.5));
    }
}

TEST_CASE("no figure is given twice, and each table has a title and all its figures") {
    std::set<std::string> names;
    std::vector<std::size_t> counts(published::table_titles.size());
    for (const published::figure& one : published::figures) {
        ++counts.at(static_cast<std::size_t>(one.in));
        CHECK(names
                  .insert(std::to_string(static_cast<int>(one.in)) + std::string(one.row) + "|" +
                          std::string(one.column))
                  .second);
    }
    CHECK(counts == std::vector<std::size_t>{28, 21, 23, 8, 13, 14, 13});
    for (const std::string_view title : published::table_titles) {
        CHECK(!title.empty());
    }
}

TEST_CASE("contradictions are numbered in order, and each has a figure that shows it") {
    std::set<int> shown;
    for (const published::figure& one : published::figures) {
        shown.insert(one.note);
    }
    int number = 0;
    for (const published::contradiction& one : published::contradictions) {
        CHECK(one.number == ++number);
        CHECK(one.text.size() > 40);
        CHECK(shown.contains(number));
    }
    CHECK((number == 12 && *shown.rbegin() == 12));
}

TEST_CASE("a printed number keeps its digits, and nothing else is one") {
    check_number("12.30", "12.30");
    check_number("1,266", "1,266");
    check_number("0.019", "0.019");
    check_number("", "");
    CHECK(published::printed_number("12.30").unit() == Approx(0.01));
    CHECK(published::printed_number("98").unit() == 1);
    for (const char* bad : {"1.2.3", "-1", "1e3", " 1", "n/a"}) {
        CHECK_THROWS_AS(published::printed_number{bad}, tensafe::parameter_error);
    }
}
