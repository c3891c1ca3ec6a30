#include <tensafe/io/half.hpp>
#include <tensafe/lora/model/model_client.hpp>
#include <tensafe/lora/tracing/marks.hpp>
#include <tensafe/wire/held_adapter.hpp>

#include <nlohmann/json.hpp>

#include "../../random_values.hpp"
#include "../../test.hpp"

using namespace tests;
using namespace tensafe::lora;

namespace {

constexpr std::size_t many = std::size_t{1} << 17;

random::seed tenant(std::uint8_t number) {
    random::seed result;
    result.bytes.fill(number);
    return result;
}

template <class T = std::uint8_t>
std::vector<T> from_hex(const std::string& text) {
    std::vector<std::uint8_t> bytes;
    for (std::size_t i = 0; i < text.size(); i += 2) {
        bytes.push_back(static_cast<std::uint8_t>(std::stoi(text.substr(i, 2), nullptr, 16)));
    }
    std::vector<T> result(bytes.size() / sizeof(T));
    std::memcpy(result.data(), bytes.data(), bytes.size());
    return result;
}

/// How many deviations of chance a leak is on the side of these marks.
template <class Leak>
double z(const Leak& leak, const std::vector<std::int8_t>& of) {
    double sum = 0;
    for (std::size_t i = 0; i < of.size(); ++i) {
        sum += static_cast<double>(leak[i]) * of[i] / 32;
    }
    return sum / norm(leak);
}
std::vector<double> difference(const matrix& x, const matrix& y) {
    std::vector<double> result(x.values.size());
    std::transform(x.values.begin(), x.values.end(), y.values.begin(), result.begin(), std::minus<double>());
    return result;
}

adapter two_sites() {
    adapter result;
    result.sites = {random_site(512, 16, 96, 1), random_site(768, 8, 64, 3)};
    result.sites[1].name = "layers.0.down_proj";
    for (adapter_site& site : result.sites) {  // columns and rows of different sizes
        for (std::size_t i = 0; i < site.b.values.size(); ++i) {
            site.b.values[i] *= static_cast<float>(1 + i % site.rank());
        }
        for (std::size_t i = 0; i < site.a.values.size(); ++i) {
            site.a.values[i] *= static_cast<float>(1 + i / site.d_in());
        }
    }
    return result;
}

}  // namespace

TEST_CASE("marks, and matrices with them, are those of a program in another language") {
    std::ifstream file(TENSAFE_TEST_DATA "/marks/answers.json");
    const auto known = nlohmann::json::parse(file);
    CHECK(from_hex<std::int8_t>(known["magnitudes"]) ==
          std::vector<std::int8_t>(mark_magnitudes.begin(), mark_magnitudes.end()));
    random::seed seed;
    const auto bytes = from_hex(known["seeds"][0]["seed"]);
    REQUIRE(bytes.size() == seed.bytes.size());
    std::copy(bytes.begin(), bytes.end(), seed.bytes.begin());
    const marks of(seed);
    REQUIRE(known["streams"].size() == 4);
    for (const auto& each : known["streams"]) {
        const std::string site = each["site"];
        CAPTURE(site);
        const auto first = from_hex<std::int8_t>(each["first"]);
        const auto all = of.levels(site, marked_matrix{each["matrix"].get<std::uint32_t>()}, 1000);
        CHECK(all.size() == 1000);
        CHECK(std::equal(first.begin(), first.end(), all.begin()));
        CHECK(std::accumulate(all.begin(), all.end(), 0) == each["sum"]);
    }
    adapter unmarked;
    unmarked.sites = {{known["site"], matrix(3, 4), matrix(5, 3), 2.0}};
    adapter_site& site = unmarked.sites[0];
    site.a.values = from_hex<float>(known["a"]);
    site.b.values = from_hex<float>(known["b"]);
    CHECK(of.added_to(marked_matrix::b, unmarked).sites[0].b.values == from_hex<float>(known["marked_b"]));
    CHECK(of.added_to(marked_matrix::a, unmarked).sites[0].a.values == from_hex<float>(known["marked_a"]));
}

TEST_CASE("marks have mean 0, variance 1.0032, and tails below those of a Gaussian of that variance") {
    double square = 0;
    for (const std::int8_t magnitude : mark_magnitudes) {
        square += magnitude * magnitude / (128.0 * 1024);
    }
    CHECK(square == doctest::Approx(1.00322).epsilon(1e-5));
    for (double slope = 1.0 / 64; slope < 64; slope *= 1.1) {  // sub-Gaussian, as proofs need it
        double mean = 0;
        for (const std::int8_t magnitude : mark_magnitudes) {
            mean += std::cosh(slope * magnitude / 32) / 128;
        }
        CHECK(std::log(mean) <= 1.00322 * slope * slope / 2 * (1 + 1e-9));
    }
    const auto drawn = marks(tenant(1)).levels("site", marked_matrix::b, many);
    std::map<int, double> counts;
    for (const std::int8_t each : drawn) {
        ++counts[each];
    }
    const double share = static_cast<double>(many) / 256;
    for (const int magnitude : {2, 32, 95}) {
        for (const int sign : {-1, 1}) {
            CAPTURE(sign * magnitude);
            const auto places =
                static_cast<double>(std::count(mark_magnitudes.begin(), mark_magnitudes.end(), magnitude));
            CHECK(std::fabs(counts[sign * magnitude] - places * share) < 5 * std::sqrt(places * share));
        }
    }
    CHECK(std::fabs(z(std::vector<double>(many, 1), drawn)) < 5);
}

TEST_CASE("marks of two tenants, two sites, A and B, and of entries side by side are independent") {
    const marks one(tenant(1));
    const std::vector<std::vector<std::int8_t>> all = {
        one.levels("layers.0.q_proj", marked_matrix::b, many),
        one.levels("layers.0.q_proj", marked_matrix::a, many),
        one.levels("layers.1.q_proj", marked_matrix::b, many), one.levels("", marked_matrix::b, many),
        marks(tenant(2)).levels("layers.0.q_proj", marked_matrix::b, many)};
    for (std::size_t i = 0; i < all.size(); ++i) {
        for (std::size_t k = 0; k < i; ++k) {
            CAPTURE(i);
            CAPTURE(k);
            CHECK(std::fabs(z(all[i], all[k])) < 5);
        }
        for (const std::ptrdiff_t apart : {1, 16, 64, 576}) {
            const std::vector<std::int8_t> moved(all[i].begin() + apart, all[i].end());
            CHECK(std::fabs(z(moved, {all[i].begin(), all[i].end() - apart})) < 5);
        }
        CHECK(z(all[i], all[i]) > 300);
    }
    // Fewer are the first of more.
    CHECK(one.levels("", marked_matrix::b, 99) ==
          std::vector<std::int8_t>(all[3].begin(), all[3].begin() + 99));
    CHECK(one.levels("", marked_matrix::b, 0).empty());
}

TEST_CASE("of a thousand tenants that took no part none is five deviations from a leak") {
    const auto leak = marks(tenant(1)).levels("site", marked_matrix::b, 4096);
    double squares = 0;
    for (std::uint32_t i = 0; i < 1000; ++i) {
        random::seed innocent = tenant(9);
        std::memcpy(innocent.bytes.data(), &i, sizeof i);
        const double of_it = z(leak, marks(innocent).levels("site", marked_matrix::b, leak.size()));
        CHECK(std::fabs(of_it) < 5);
        squares += of_it * of_it / 1000;
    }
    CHECK(std::fabs(squares - 1) < 5 * std::sqrt(2.0 / 1000));
    CHECK(z(leak, leak) > 60);
}

TEST_CASE("the change of a column of B, and of a row of A, is a 32nd of its root mean square") {
    const adapter from = two_sites();
    for (const double strength : {0x1p-9, marks::default_strength, 0x1p-3}) {
        const marks of(tenant(3), strength);
        for (const marked_matrix which : {marked_matrix::b, marked_matrix::a}) {
            const adapter to = of.added_to(which, from);
            for (std::size_t s = 0; s < from.sites.size(); ++s) {
                const adapter_site& before = from.sites[s];
                const adapter_site& after = to.sites[s];
                const bool of_b = which == marked_matrix::b;
                const matrix& x = of_b ? before.b : before.a;
                const auto change = difference(of_b ? after.b : after.a, x);
                CHECK((of_b ? after.a.values == before.a.values : after.b.values == before.b.values));
                CHECK(after.name == before.name);
                CHECK(after.scale == before.scale);
                const std::size_t lines = before.rank();
                for (std::size_t k = 0; k < lines; ++k) {
                    double of_change = 0;
                    double of_line = 0;
                    for (std::size_t i = 0; i < change.size(); ++i) {
                        if ((of_b ? i % x.columns : i / x.columns) == k) {
                            of_change += change[i] * change[i];
                            of_line += static_cast<double>(x.values[i]) * static_cast<double>(x.values[i]);
                        }
                    }
                    const auto entries = static_cast<double>(change.size() / lines);
                    CHECK(std::sqrt(of_change / of_line) ==
                          doctest::Approx(strength).epsilon(5 / std::sqrt(entries)));
                }
                CHECK(z(change, of.levels(before.name, which, change.size())) >
                      0.8 * std::sqrt(static_cast<double>(change.size())));
            }
        }
    }
}

TEST_CASE("marks belong to the names of sites: neither their order nor their number changes them") {
    const marks of(tenant(4));
    const adapter from = two_sites();
    const adapter to = of.added_to(marked_matrix::b, from);
    adapter turned = from;
    std::reverse(turned.sites.begin(), turned.sites.end());
    turned.sites.insert(turned.sites.begin(), random_site(8, 4, 8, 5));
    turned.sites[0].name = "layers.0.a_site_of_a_later_revision";
    turned = of.added_to(marked_matrix::b, std::move(turned));
    for (const adapter_site& site : to.sites) {
        CHECK(turned.site(site.name).b.values == site.b.values);
    }
}

TEST_CASE("marks on what a client holds are those on B, and survive the message and a rounding to BF16") {
    const marks of(tenant(5));
    const adapter from = two_sites();
    const adapter first = client_part(of.added_to(marked_matrix::b, from));
    const adapter last = of.added_to(marked_matrix::b, client_part(from));
    const adapter read = wire::read_held_adapter(wire::write_whole_adapter(last));
    for (std::size_t s = 0; s < from.sites.size(); ++s) {
        const matrix& sent = last.sites[s].b;
        CHECK(read.sites[s].b.values == sent.values);
        CHECK(norm(difference(first.sites[s].b, sent)) < 1e-6 * norm(sent.values));
        matrix rounded = sent;
        for (float& x : rounded.values) {
            x = io::float_from_bfloat16(io::bfloat16_from_double(static_cast<double>(x)));
        }
        // Columns are as the norms of A's rows: the owner divides by what they are in B.
        const matrix unmarked = client_part(from).sites[s].b;
        for (const matrix* leak : {&sent, &std::as_const(rounded)}) {
            auto found = difference(*leak, unmarked);
            std::vector<double> squares(unmarked.columns);
            for (std::size_t i = 0; i < found.size(); ++i) {
                squares[i % unmarked.columns] +=
                    static_cast<double>(unmarked.values[i]) * static_cast<double>(unmarked.values[i]);
            }
            for (std::size_t i = 0; i < found.size(); ++i) {
                found[i] /= std::sqrt(squares[i % unmarked.columns]);
            }
            CHECK(z(found, of.levels(from.sites[s].name, marked_matrix::b, found.size())) >
                  0.98 * std::sqrt(static_cast<double>(found.size())));
        }
    }
}

TEST_CASE("three holders who take the odd one out of their copies are all found, as signs would not show") {
    std::array<std::vector<std::int8_t>, 3> of;
    for (std::size_t i = 0; i < of.size(); ++i) {
        of[i] = marks(tenant(static_cast<std::uint8_t>(10 + i))).levels("site", marked_matrix::b, 16384);
    }
    std::vector<double> leak(of[0].size());
    for (std::size_t i = 0; i < leak.size(); ++i) {
        std::array<int, 3> copies{of[0][i], of[1][i], of[2][i]};
        std::sort(copies.begin(), copies.end());
        leak[i] = copies[1] - copies[0] > copies[2] - copies[1] ? copies[0] : copies[2];
    }
    for (const auto& each : of) {
        CHECK(z(leak, each) > 9);
    }
}

TEST_CASE("columns of zeros and empty matrices have no marks, and entries that are not finite are refused") {
    const marks of(tenant(6));
    adapter some;
    some.sites = {{"zeros", matrix(2, 3), matrix(4, 2), 1.0},
                  {"none", {}, {}, 1.0},
                  {"flat", matrix(2, 0), matrix(0, 2), 1}};
    some.sites[0].b.values = {0, 1, 0, -1, 0, 1, 0, -1};
    const adapter marked = of.added_to(marked_matrix::b, some);
    const auto& values = marked.sites[0].b.values;
    for (std::size_t i = 0; i < values.size(); ++i) {
        CHECK((values[i] == some.sites[0].b.values[i]) ==
              (i % 2 == 0 || of.levels("zeros", marked_matrix::b, 8)[i] == 0));
    }
    CHECK(of.added_to(marked_matrix::a, some).sites[0].a.values == some.sites[0].a.values);
    CHECK(marked.sites[1].b.values.empty());

    for (const float bad :
         {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
        adapter wrong = some;
        wrong.sites[0].b.values[5] = bad;
        CHECK(refusal<encoding_error>([&] { static_cast<void>(of.added_to(marked_matrix::b, wrong)); }) ==
              "marks: site \"zeros\": B[2][1] is not a finite number");
    }
    adapter huge = some;
    huge.sites[0].b.values.assign(8, std::numeric_limits<float>::max());
    CHECK(contains(refusal<encoding_error>([&] { static_cast<void>(of.added_to(marked_matrix::b, huge)); }),
                   "marks, in a sum that passes float: site \"zeros\": B["));
    adapter torn = some;
    torn.sites[0].b.values.pop_back();
    CHECK(refusal<shape_error>([&] { static_cast<void>(of.added_to(marked_matrix::b, torn)); }) ==
          "marks: B of site \"zeros\": got 7 values for a 4 x 2 matrix, expected 8");
}

TEST_CASE("a grid to which a copy can be rounded without its marks is refused, and a finer one is not") {
    const marks of(tenant(8));
    const adapter exact = two_sites();
    for (const int bits : {4, 5, 6, 8}) {
        CAPTURE(bits);
        adapter some = exact;
        std::vector<float>& values = some.sites[0].b.values;
        values = random_matrix(512, 16, 1).values;
        const auto [least, most] = std::minmax_element(values.begin(), values.end());
        const float step = std::max(-*least, *most) / static_cast<float>((1 << (bits - 1)) - 1);
        const auto to_grid = [&](std::vector<float>& of_some) {
            for (float& x : of_some) {
                x = step * std::nearbyint(x / step);
            }
        };
        to_grid(values);
        auto copy = of.added_to(marked_matrix::b, some).sites[0].b;
        to_grid(copy.values);
        const auto leak = difference(copy, some.sites[0].b);
        if (bits < 6) {
            CHECK(norm(leak) == 0);
            CHECK_THROWS_WITH_AS(check_markable(some, marked_matrix::b),
                                 Contains("marks: B of site \"layers.0.q_proj\" has "), parameter_error);
        } else {
            CHECK(z(leak, of.levels(some.sites[0].name, marked_matrix::b, leak.size())) > 30);
            CHECK_NOTHROW(check_markable(some, marked_matrix::b));
        }
        CHECK_NOTHROW(check_markable(some, marked_matrix::a));
    }
    adapter others = exact;
    for (float& x : others.sites[0].b.values) {
        x = io::float_from_bfloat16(io::bfloat16_from_double(static_cast<double>(x)));
    }
    others.sites[1].b = matrix(768, 8);
    others.sites.push_back({"few", matrix(2, 3), random_matrix(4, 2, 5), 1.0});
    others.sites.push_back({"none", {}, {}, 1.0});
    CHECK_NOTHROW(check_markable(others, marked_matrix::b));
}

TEST_CASE("a strength at which marks drown or are seen is refused") {
    for (const double strength : {0.0, -0x1p-5, 0x1p-10, 0.2, infinity, not_a_number}) {
        CHECK_THROWS_WITH_AS(marks(tenant(7), strength), Contains("expected one in [2^-9, 2^-3]"),
                             parameter_error);
    }
}
