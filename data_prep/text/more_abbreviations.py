"""Abbreviations of further languages, for documents whose language is identified as one of them.

They never apply to documents of another or an undetermined language.
"""

from data_prep.text.abbreviations import Abbreviations, words_of

_NORDIC = Abbreviations(
    words_of("""
        dr hr fru frk prof f.eks fx eks bl.a dvs d.v.s ca jf kgl pga p.g.a mht m.h.t ang iflg ifm
        evt inkl ekskl resp vedr st bl tlf adr forts overs
    """),
    words_of("nr s kl kap art bd fig stk pkt jan feb mar apr jun jul aug sept okt nov des dec"),
    words_of("osv m.m mm m.fl m.v mv o.l o.lign etc mio mia mill mrd kr jr a.s"),
    words_of("""
        Den Det De Denne Dette Disse Der Da Her Han Hun Hans Hendes Hennes Vi I Jeg Du Man En Et På
        Af Av Til Fra Med Men Og Om Når Efter Etter Før Under Siden Så Nu Nå Eller For Som Ved Alle
        Mange Nogle Noen Ikke Hvad Hva Hvem Hvorfor Hvordan
    """),
)
MORE = {
    "cs": Abbreviations(
        words_of("""
            např dr prof doc ing mgr bc mudr judr phdr rndr sv tzv tj tzn resp popř příp zejm ul nám
            gen plk kpt vč cca angl něm lat
        """),
        words_of("č čís str s čl odst obr tab kap sb"),
        words_of("atd apod aj ap r tis mil mld kč hod min"),
        words_of("V Na Po Pro Se To Je Ale A Když Jak Z K O Do Od Podle Tento Tato Toto Ten Ta Já"),
    ),
    "da": _NORDIC,
    "es": Abbreviations(
        words_of("""
            sr sra srta sres sras dr dra dres d dña lic ing arq prof profa gral cnel tte cap pdte
            sto sta mons excmo excma ilmo ud uds vd vds p.ej ej aprox av avda ctra depto dpto admón
            tel cf vs sgto almte
        """),
        words_of("núm núms nro no pág págs p pp art arts vol vols cap caps fig figs t ap"),
        words_of("etc s.a cía cia ltda hnos jr a.c d.c ee.uu"),
        words_of("""
            El La Los Las Un Una En Es Se No Por Para Con Pero Y Este Esta Estos Estas Ese Esa Su
            Sus Al Del Cuando Como Si Que Lo Le Él Ella Ellos Hay Ha Según También Además Sin Entre
        """),
    ),
    "fi": Abbreviations(
        words_of(
            "esim ns mm ks vrt n prof tri toht fil maist lis ko ao em ent synt k os puh vt vs"
        ),
        words_of("nro s kpl art klo kohta"),
        words_of("ym yms jne milj mrd eur oy"),
        words_of("Se Hän He Me Te Ne Tämä Nämä Tuo Mutta Ja Kun Jos Niin Myös Vaikka Sen Hänen"),
    ),
    "fr": Abbreviations(
        words_of("""
            m mm mme mmes mlle mlles dr pr me mgr st ste cf p.ex ex env av apr j.-c boul bd tél adj
            gén col cne lt ing prof dir hab éd réf
        """),
        words_of("no nos n° art p pp vol chap fig t al § ch"),
        words_of("etc cie sté jr"),
        words_of("""
            Le La Les Un Une Des Il Elle Ils Elles On Ce Cette Ces En Dans Par Pour Avec Sur Au Aux
            Mais Et Ou Si Quand Nous Vous Je Tu Son Sa Ses Leur Cela Après Avant Selon Ainsi L D C
        """),
    ),
    "it": Abbreviations(
        words_of("""
            sig sigg sig.ra dott dott.ssa dr prof prof.ssa avv ing arch geom rag on sen gen col cap
            mons s ss p.es es cfr tel ecc.mo egr gent spett
        """),
        words_of("n nn nr art artt pag pagg p pp vol cap fig tab par co"),
        words_of("ecc etc s.p.a spa s.r.l srl jr a.c d.c"),
        words_of("""
            Il Lo La I Gli Le Un Una In Di Da Per Con Su Ma E Se Non Si Questo Questa Questi Queste
            Quando Come Che Nel Nella Al Alla Dal Del Della Ha È Sono Anche Dopo Secondo L
        """),
    ),
    "nl": Abbreviations(
        words_of("""
            dhr mevr mw mej dr drs ir ing mr mrs prof ds st o.a d.w.z dwz bijv bv resp ca evt incl
            excl i.v.m ivm m.b.t mbt t.o.v tov t.a.v n.a.v z.g zgn jl aug sept okt nov dec jan febr
            gen kol kapt min red
        """),
        words_of("nr nrs art blz p pag afb hfst tel"),
        words_of("enz etc e.d jr sr co mln mld n.v nv b.v v.chr n.chr"),
        words_of("""
            De Het Een Hij Zij Ze Wij We Ik Je Dit Dat Deze Die In Op Van Met Voor Maar En Of Als Er
            Daar Hier Nu Ook Niet Na Bij Toen Volgens Door Om Te Zo Wat Wie Waarom Hoe
        """),
    ),
    "no": _NORDIC,
    "pl": Abbreviations(
        words_of("""
            np dr prof doc inż mgr hab gen płk kpt por im św ks bp abp o al ul pl os tzn tzw m.in
            ok godz tj zob por wg ds
        """),
        words_of("nr str s art ust poz pkt rys tab t rozdz"),
        words_of("itd itp etc r w tys mln mld zł gr p.n.e n.e jr"),
        words_of("W Na Po Od Do To Jest Ale I A Gdy Jak Z Za Ten Ta Te On Ona Oni Nie Tak Przez"),
    ),
    "pt": Abbreviations(
        words_of("""
            sr sra srs sras srta dr dra drs d dª prof profa eng arq gen cel cap ten mons exmo exma
            v.exa p.ex ex aprox av tel cf séc depto min
        """),
        words_of("nº n no núm art arts p pp pág págs vol cap fig inc"),
        words_of("etc s.a cia ltda jr a.c d.c"),
        words_of("""
            O A Os As Um Uma Em No Na Nos Nas É Se Não Por Para Com Mas E Este Esta Estes Esse Essa
            Seu Sua Ao À Do Da Quando Como Que Ele Ela Eles Há Segundo Também Além Sem Entre
        """),
    ),
}
